"""One fit of one equation, and what all figures of equations share."""
