"""Shared options of the configs; this module imports nothing heavy."""

from typing import Literal

__all__ = ["INITS", "Init"]

Init = Literal["torch", "normal", "xavier"]
INITS: tuple[Init, ...] = ("torch", "normal", "xavier")
"""torch's own, 0.1 · N(0, 1) for weights and biases, and Xavier's normal one with zero biases."""
