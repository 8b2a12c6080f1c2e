"""Where training goes: descents and flows, with error control and a reason for stopping."""

from natgrad.flows._descend import StepRule, constant, descend, midpoint, normalized
from natgrad.flows._end_to_end import end_to_end
from natgrad.flows._integrate import integrate
from natgrad.flows.trajectory import Trajectory
from natgrad.stopping import Status

__all__ = [
    "Status",
    "StepRule",
    "Trajectory",
    "constant",
    "descend",
    "end_to_end",
    "integrate",
    "midpoint",
    "normalized",
]
