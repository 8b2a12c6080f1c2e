"""Numbers behind the claims of Figure 5: rank tests, effect of the start, cost of the loop."""

import numpy as np

from natgrad.experiments.kmh21.fig5._further import EDGE
from natgrad.experiments.kmh21.fig5.config import Fig5
from natgrad.lab.arrays import Arrays


def rank_tests(config: Fig5, arrays: Arrays) -> dict[str, float]:
    """Return p-values for an effect of the depth of the initial product.

    Unpaired tests compare starts at each N (Kruskal–Wallis for three starts, Mann–Whitney for two);
    their smallest p is multiplied by their number. Paired tests compare starts within problems, by
    the mean over N of the log test loss (Friedman for three, Wilcoxon for two).
    """
    from scipy import stats

    unpaired, paired = [], []
    for depth in (2, 3):
        mine = [k for k, pair in enumerate(config.collapsed) if pair[0] == depth]
        losses = arrays["init_test"][mine]  # start, N, seed
        test = stats.kruskal if len(mine) > 2 else stats.mannwhitneyu
        unpaired += [float(test(*losses[:, k]).pvalue) for k in range(losses.shape[1])]
        blocks = np.log(losses).mean(axis=1)
        pair = stats.friedmanchisquare if len(mine) > 2 else stats.wilcoxon
        paired.append(float(pair(*blocks).pvalue))
    return {"unpaired": min(1.0, min(unpaired) * len(unpaired)), "L2": paired[0], "L3": paired[1]}


def start_effect(config: Fig5, arrays: Arrays) -> dict[int, float]:
    """Return, by depth, the factor by which the deepest start changes the test loss."""
    effect = {}
    for depth in (2, 3):
        mine = [k for k, pair in enumerate(config.collapsed) if pair[0] == depth]
        logs = np.log(arrays["init_test"][mine]).mean(axis=1)  # start, seed
        effect[depth] = float(np.exp(np.median(logs[-1] - logs[0])))
    return effect


def loop_over_flow(config: Fig5, arrays: Arrays) -> float:
    """Return the time of an autograd loop for the EGD cells, relative to that of the flows.

    A stable loop takes about t · radius / 1.8 steps to the time t at which a flow ended. Flows end
    slightly after the training error is met, so this number is multiplied by the share of such
    steps that the loops of the race actually took. Seconds per step and per gradient at each depth
    come from the race.
    """
    depths = np.array([depth for depth, _, _ in config.race])
    taken = float((arrays["race_steps"] / arrays["race_expected_steps"]).min())
    loop = flow = 0.0
    for k, depth in enumerate(config.depths):
        near = depths == depth if (depths == depth).any() else depths == depths.max()
        a_step = np.sum(arrays["race_loop_seconds"][near]) / np.sum(arrays["race_steps"][near])
        a_gradient = np.sum(arrays["race_flow_seconds"][near])
        a_gradient /= np.sum(arrays["race_evaluations"][near])
        steps = arrays["egd_time"][k] * arrays["egd_radius"][k] / EDGE
        loop += taken * float(steps.sum()) * float(a_step)
        flow += float(arrays["egd_evaluations"][k].sum()) * float(a_gradient)
    return loop / flow
