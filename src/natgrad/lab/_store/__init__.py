"""Files of a run: written whole or not at all, and checked when they are read."""
