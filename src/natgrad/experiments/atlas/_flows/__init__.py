"""Flows of logistic regression by arc length, which reach margins of a million in a second."""
