"""Flows of matrix completion."""
