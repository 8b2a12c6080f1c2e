"""Descents and flows, with error control and a reason for stopping."""

from natgrad.flows._by_length import integrate_by_length
from natgrad.flows._descend import descend
from natgrad.flows._end_to_end import end_to_end
from natgrad.flows._integrate import integrate
from natgrad.flows._rules.adam import adam
from natgrad.flows._rules.armijo import armijo
from natgrad.flows._rules.base import StepRule
from natgrad.flows._rules.capped import capped
from natgrad.flows._rules.constant import constant
from natgrad.flows._rules.diagonal_fisher import diagonal_fisher
from natgrad.flows._rules.kfac import kfac
from natgrad.flows._rules.midpoint import midpoint
from natgrad.flows._rules.momentum import momentum
from natgrad.flows._rules.muon import muon
from natgrad.flows._rules.normalized import normalized
from natgrad.flows._rules.shampoo import shampoo
from natgrad.flows._rules.steepest import steepest
from natgrad.flows._schedules import DampingSchedule, decaying_damping, loss_damping
from natgrad.flows.trajectory import Trajectory
from natgrad.stopping import Status

__all__ = [
    "DampingSchedule",
    "Status",
    "StepRule",
    "Trajectory",
    "adam",
    "armijo",
    "capped",
    "constant",
    "decaying_damping",
    "descend",
    "diagonal_fisher",
    "end_to_end",
    "integrate",
    "integrate_by_length",
    "kfac",
    "loss_damping",
    "midpoint",
    "momentum",
    "muon",
    "normalized",
    "shampoo",
    "steepest",
]
