"""Steps of one vector, with error control."""
