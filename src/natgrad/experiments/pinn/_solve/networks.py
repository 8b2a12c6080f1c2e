"""Networks and their initializations."""

from itertools import pairwise

import torch
from torch.nn import Linear, Module, Sequential, Tanh, init

from natgrad.experiments.pinn._solve.presets import Init

__all__ = ["network"]


def network(features: int, widths: tuple[int, ...], start: Init, seed: int) -> Sequential:
    """Return a tanh network with one output, in double precision."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[Module] = []
        for n_in, n_out in pairwise((features, *widths, 1)):
            layers += [Linear(n_in, n_out, dtype=torch.float64), Tanh()]
        net = Sequential(*layers[:-1])
        for layer in net:
            if isinstance(layer, Linear):
                _start(layer, start)
    return net


def _start(layer: Linear, start: Init) -> None:
    if start == "normal":
        init.normal_(layer.weight, std=0.1)
        init.normal_(layer.bias, std=0.1)
    if start == "xavier":
        init.xavier_normal_(layer.weight)
        init.zeros_(layer.bias)
