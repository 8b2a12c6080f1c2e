"""Products of matrices: lifts to their factors, their kernel, their observed entries."""
