"""Numbers that describe a solution: margins, angles, ranks, accuracy, conserved quantities.

All functions accept leading dimensions, so you can pass all saved states of a trajectory at once.
"""

from natgrad.diagnostics._accuracy import gaussian_accuracy
from natgrad.diagnostics._angles import angle, cosine, distance_to_limits
from natgrad.diagnostics._conserved import balancedness, off_span
from natgrad.diagnostics._margin import margin, normalized_margins
from natgrad.diagnostics._rank import effective_rank, numerical_rank, trace_norm
from natgrad.diagnostics._support import SupportRecovery, support_recovery

__all__ = [
    "SupportRecovery",
    "angle",
    "balancedness",
    "cosine",
    "distance_to_limits",
    "effective_rank",
    "gaussian_accuracy",
    "margin",
    "normalized_margins",
    "numerical_rank",
    "off_span",
    "support_recovery",
    "trace_norm",
]
