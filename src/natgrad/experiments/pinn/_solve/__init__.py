"""One fit of one equation, and the code that all figures of equations share."""
