"""Products of matrices: lifts through them, their kernel, their observed entries."""
