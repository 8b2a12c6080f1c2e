"""Equations with their solutions: points, residuals, and the truth to compare with."""
