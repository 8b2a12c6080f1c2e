"""Separators of two classes: each optimizer and its certified limit."""
