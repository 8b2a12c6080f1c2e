"""Routes to the natural direction: by rows, by structure."""
