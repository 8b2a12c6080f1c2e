"""Limits of trajectories, each by an independent kind of solver and with a certificate."""

from natgrad.limits._certify import Certified, certify, gradient_weights
from natgrad.limits._least_squares import basis_pursuit, least_squares
from natgrad.limits._max_margin import max_margin, multiclass_max_margin
from natgrad.limits._natural_flow import natural_flow
from natgrad.limits._nuclear_norm import nuclear_norm
from natgrad.limits._result import Limit
from natgrad.limits._separability import Separability, SeparabilityError, separability

__all__ = [
    "Certified",
    "Limit",
    "Separability",
    "SeparabilityError",
    "basis_pursuit",
    "certify",
    "gradient_weights",
    "least_squares",
    "max_margin",
    "multiclass_max_margin",
    "natural_flow",
    "nuclear_norm",
    "separability",
]
