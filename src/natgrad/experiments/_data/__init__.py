"""Data that only figures and races use: clothes, the text behind `help()`, scikit-learn's tables."""
