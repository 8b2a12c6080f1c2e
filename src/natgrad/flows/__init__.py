"""Where training goes: descents and flows, with error control and a reason for stopping."""

from natgrad.flows._descend import descend
from natgrad.flows._end_to_end import end_to_end
from natgrad.flows._integrate import integrate
from natgrad.flows._rules.armijo import armijo
from natgrad.flows._rules.base import StepRule
from natgrad.flows._rules.constant import constant
from natgrad.flows._rules.midpoint import midpoint
from natgrad.flows._rules.normalized import normalized
from natgrad.flows._schedules import DampingSchedule, decaying_damping, loss_damping
from natgrad.flows.trajectory import Trajectory
from natgrad.stopping import Status

__all__ = [
    "DampingSchedule",
    "Status",
    "StepRule",
    "Trajectory",
    "armijo",
    "constant",
    "decaying_damping",
    "descend",
    "end_to_end",
    "integrate",
    "loss_damping",
    "midpoint",
    "normalized",
]
