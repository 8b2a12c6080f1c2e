"""Where training goes: descents and flows, with error control and a reason for stopping."""

from natgrad.flows.descend import StepRule, constant, descend, normalized
from natgrad.flows.integrate import integrate
from natgrad.flows.stopping import (
    Rule,
    direction_settled,
    loss_below,
    margin_above,
    steps_reached,
    time_reached,
    wall_clock,
)
from natgrad.flows.trajectory import Status, Trajectory

__all__ = [
    "Rule",
    "Status",
    "StepRule",
    "Trajectory",
    "constant",
    "descend",
    "direction_settled",
    "integrate",
    "loss_below",
    "margin_above",
    "normalized",
    "steps_reached",
    "time_reached",
    "wall_clock",
]
