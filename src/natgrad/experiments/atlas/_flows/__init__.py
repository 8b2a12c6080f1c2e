"""Flows of logistic regression that reach margins of a million in a second."""
