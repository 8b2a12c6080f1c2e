"""Step rules of `descend`, one per file."""
