"""Numbers that describe a solution: margins, angles, ranks, accuracy, conserved quantities.

Functions of a separator or a matrix accept leading dimensions, so you can pass all saved states of
a trajectory at once. Those in a norm other than ℓp, and `kkt`, take one state.
"""

from natgrad.diagnostics._accuracy import gaussian_accuracy
from natgrad.diagnostics._angles import angle, cosine, distance_to_limits
from natgrad.diagnostics._conserved import balancedness, off_span
from natgrad.diagnostics._kkt import Stationarity, kkt
from natgrad.diagnostics._margin import margin, normalized_margins
from natgrad.diagnostics._norms import margin_fractions, norm_margin
from natgrad.diagnostics._rank import effective_rank, numerical_rank, trace_norm
from natgrad.diagnostics._rates import Rate, fit_rate
from natgrad.diagnostics._support import SupportRecovery, support_recovery

__all__ = [
    "Rate",
    "Stationarity",
    "SupportRecovery",
    "angle",
    "balancedness",
    "cosine",
    "distance_to_limits",
    "effective_rank",
    "fit_rate",
    "gaussian_accuracy",
    "kkt",
    "margin",
    "margin_fractions",
    "norm_margin",
    "normalized_margins",
    "numerical_rank",
    "off_span",
    "support_recovery",
    "trace_norm",
]
