"""Separators of two classes: each optimizer and the certified limit that it tends to."""
