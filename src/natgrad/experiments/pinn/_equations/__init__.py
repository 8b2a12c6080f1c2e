"""Equations with their solutions: points, residuals, and reference solutions."""
