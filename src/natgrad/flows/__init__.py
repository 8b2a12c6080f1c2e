"""Where training goes: descents and flows, with error control and a reason for stopping."""

from natgrad.flows.descend import StepRule, constant, descend, midpoint, normalized
from natgrad.flows.end_to_end import end_to_end
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
    "end_to_end",
    "integrate",
    "loss_below",
    "margin_above",
    "midpoint",
    "normalized",
    "steps_reached",
    "time_reached",
    "wall_clock",
]
