"""Natural gradient flow of logistic regression."""
