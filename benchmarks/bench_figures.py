"""Gradient flows of Figures 4 and 5 at the paper preset, against the loops they replace.

The EGD flows of the two figures run. Their loops would take days, so a loop counts as its number
of steps times the CPU time of one, timed in turn with the flows:

- Figure 4: 2 million steps of ½ for every flow, as in the paper, without autograd.
- Figure 5: the steps of an autograd loop near the edge of stability, t · radius / 1.8, times the
  least share of these that loops took which ran to the end (five cells, checked).

    python benchmarks/bench_figures.py            # both, about eight CPU minutes
    python benchmarks/bench_figures.py 5          # one of them
    python benchmarks/bench_figures.py --seeds 2  # the first two data sets of each point
"""

import argparse
import itertools
import time
from collections import Counter

import numpy as np
import torch
from harness import Row, report

from natgrad.experiments.kmh21._completion.cells import EuclideanConfig, Task, start
from natgrad.experiments.kmh21._separable.cells import Euclidean, euclidean_flow
from natgrad.experiments.kmh21._separable.curves import task
from natgrad.experiments.kmh21.fig4._variants import Loop, loop
from natgrad.experiments.kmh21.fig4.cells import late_times
from natgrad.experiments.kmh21.fig4.config import Fig4
from natgrad.experiments.kmh21.fig5._further import EDGE, RaceConfig, race
from natgrad.experiments.kmh21.fig5.config import Fig5
from natgrad.flows._methods.completion.flow import completion_flow

STEPS = 2_000_000  # of the paper's loop in Figure 4


def figure4(seeds: int | None) -> Row:
    """Return the CPU time of the paper's loop over that of our flows, all EGD curves together."""
    config = Fig4()
    seeds = seeds or config.seeds
    loops = flows = apart = 0.0
    for (depth, scale), n in itertools.product(
        zip(config.depths, config.scales, strict=True), config.observations
    ):
        timed = loop(Loop(task(config, n, 0), depth, scale, 0.5, config.loop_steps))
        loops += STEPS * float(timed["step_seconds"]) * seeds
        apart = max(apart, float(timed["distance"]))
        # As in the figure: at this N one flow also serves the panel on late times.
        times = late_times(config) if n == config.few else (config.until,)
        for seed in range(seeds):
            flow = euclidean_flow(Euclidean(task(config, n, seed), depth, scale, times))
            flows += float(flow["seconds"])
        print(f"Figure 4, L = {depth}, N = {n}: {loops / flows:.0f} × so far", flush=True)
    return Row(
        "Figure 4: 2 million steps / flow, all EGD curves",
        loops / flows,
        "×",
        "≥ 2000",
        loops / flows >= 2000 and apart <= 5e-3,
        f"{seeds} seeds: loops {loops / 3600:.0f} h, flows {flows:.0f} s; over "
        f"{config.loop_steps} steps both end within {apart:.0e}",
    )


def figure5(seeds: int | None) -> Row:
    """Return the CPU time of autograd loops over that of our flows, all EGD cells together."""
    config = Fig5()
    seeds = seeds or config.seeds

    def cell(depth: int, scale: float, n: int, seed: int) -> EuclideanConfig:
        one = Task(size=config.size, rank=config.rank, observed=n, seed=seed)
        return EuclideanConfig(task=one, depth=depth, scale=scale)

    races = [race(RaceConfig(cell=cell(*given, 0))) for given in config.race]
    taken = min(float(found["steps"] / found["expected_steps"]) for found in races)
    loops, flows = Counter[bool](), Counter[bool]()  # by whether the observed entries fit
    for depth, n in itertools.product(config.depths, config.observed):
        for scale, seed in itertools.product(config.scales, range(seeds)):
            given = cell(depth, scale, n, seed)
            step = _autograd_step(given)
            problem = given.task.problem()
            factors, values = start(given), problem.values.float()
            began = time.process_time()
            flow = completion_flow(
                factors, problem.positions, values, max_evaluations=config.max_evaluations
            )
            fits = flow.status.reached
            flows[fits] += time.process_time() - began
            radius = float(flow.recorded["radius"][-1])
            loops[fits] += step * taken * float(flow.times[-1]) * radius / EDGE
        ratio = loops.total() / flows.total()
        print(f"Figure 5, L = {depth}, N = {n}: {ratio:.0f} × so far", flush=True)
    agree = bool(np.all([found["agree"] for found in races]))
    return Row(
        "Figure 5: autograd loop / flow, all EGD cells",
        ratio,
        "×",
        "≥ 450",
        ratio >= 450 and agree,
        f"{seeds} seeds: loops {loops.total() / 3600:.0f} h, flows {flows.total():.0f} s; cells "
        f"that fit their entries alone {loops[True] / flows[True]:.0f} × in {flows[True]:.0f} s; "
        f"loops that ran to the end took at least {taken:.2f} of the expected steps, and "
        f"{'agree' if agree else 'DISAGREE'}",
    )


def _autograd_step(config: EuclideanConfig, steps: int = 100) -> float:
    """Return the CPU seconds of one step of an autograd loop."""
    problem = config.task.problem()
    factors = [w.requires_grad_() for w in start(config)]
    (rows, columns), values = problem.positions.unbind(1), problem.values.float()
    for k in range(steps + 10):
        if k == 10:  # the first ones warm up
            began = time.process_time()
        beta = factors[0]
        for w in factors[1:]:
            beta = beta @ w
        loss = 0.5 * (beta[rows, columns] - values).square().sum()
        loss.item()
        gradients = torch.autograd.grad(loss, factors)
        with torch.no_grad():
            for w, g in zip(factors, gradients, strict=True):
                w -= 1e-3 * g
    return (time.process_time() - began) / steps


if __name__ == "__main__":
    figures = {"4": figure4, "5": figure5}
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("figures", nargs="*", choices=figures, default=list(figures))
    parser.add_argument("--seeds", type=int)
    asked = parser.parse_known_args()[0]
    rows = [figures[word](asked.seeds) for word in asked.figures]
    report("Figures 4 and 5: flows against loops", rows)
