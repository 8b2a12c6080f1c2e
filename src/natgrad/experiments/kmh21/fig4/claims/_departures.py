"""What Figure 4 chooses where the paper is silent, and where its text and our numbers part."""

from collections.abc import Sequence

from natgrad.experiments.kmh21._separable.curves import NGD, POPULATION, Table
from natgrad.experiments.kmh21.fig4.claims._explanations import gaussian_rivals, loop_seconds
from natgrad.experiments.kmh21.fig4.config import Fig4
from natgrad.lab.arrays import Arrays


def departures(config: Fig4, arrays: Arrays) -> Sequence[str]:
    """Return what we chose, and where the paper's text and our numbers part."""
    accuracy, few = Table(arrays), config.few

    def mean(method: str, n: int = few) -> str:
        return f"{100 * accuracy(method, n).mean():.1f} %"

    curves, _ = loop_seconds(config, arrays)
    step = arrays["step_seconds"]
    deep = 100 * arrays["deep"][:, :, -1].mean(axis=1)
    late = arrays["late"][config.depths.index(2)].mean(axis=0)
    most = max(config.observations)
    named, share = (Table(arrays, name)(NGD, most) for name in ("named", "share"))
    return [
        "Accuracy is exact, 1 − ∠(β, β*)/π for Gaussian inputs: no test set. Curves are means over "
        f"{config.seeds} data sets, bands one standard deviation.",
        f"EGD is gradient flow to t = {config.until:g} on the mean loss (2 million steps, were "
        "they of length ½; the paper prints no step length), from w₁ = 0 and the other factors "
        f"{', '.join(f'{s:g} (L = {d})' for d, s in zip(config.depths, config.scales, strict=True) if d > 1)}. "  # noqa: E501
        "The paper prints no initialisation.",
        f"“At chance when N < D”: from β = 0 NGD reaches {mean(NGD)} at N = {few}, exactly the "
        f"shortest interpolant, and falls to {mean(NGD, config.dim)} only at N = D. Chance for all "
        "N < D needs random coefficients, Euler steps and a large scale (panel E): at N = "
        f"{few} steps of {config.overshoot_step:g} end at {_by_scale(config, arrays)}; the flow "
        "from the same coefficients loses nothing. A logit that starts at −10 has velocity e¹⁰, "
        "and one step makes it dominate all others; initial logits have a standard deviation of "
        f"{config.dim**0.5:.0f} times the scale. N > D is left out: no closed step exists there.",
        f"“L = 4 on par with L = 1”: from the start above, L = 4 reaches {mean('EGD L=4')} at "
        f"N = {few}, L = 1 {mean('EGD L=1')}. From Gaussian factors (panel D; data sets: "
        f"{config.slow_seeds}) it has {_gaussian(config, arrays)}: behind the constant start "
        "everywhere, on par with L = 1 at some N and not at others. Coordinates whose factors "
        "happen to start large run ahead and separate the data, while true ones that start small "
        "are still near the saddle and get no more gradient. More steps hardly help: from "
        f"t = {config.until:g} to {100 * config.until:g} accuracy gains at most {_gains(arrays)}. "
        f"At t = {config.until / 100:g} a small start with many data is still on its way, as the "
        "paper guesses.",
        f"“NGD fails to learn the sparse structure”: at N = {most} the {config.ones} largest |β| "
        f"of NGD are the true features in {(named == 1).sum()} of {config.seeds} data sets. It "
        "learns which features matter, and adds noise on the others: "
        f"{100 * share.mean():.0f} % of ‖β‖ is on the true ones. At N = D it does fail: "
        f"{100 * Table(arrays, 'named')(NGD, config.dim).mean():.0f} % of the largest are true.",
        "“Population Fisher worse than EGD”: worse than the deep networks, but at least as good "
        f"as EGD L = 1 at every N ({mean(POPULATION)} and {mean('EGD L=1')} at N = {few}).",
        f"L = 2 does not reach the ℓ1 max margin (accuracy "
        f"{100 * arrays['l1_accuracy'].mean():.1f} % at N = {few}) and is better for it: accuracy "
        f"is {100 * late.max():.1f} % at its best and {100 * late[-1]:.1f} % at "
        f"t = {config.late:g} (panel F). The stopping time is part of the method.",
        "Invariance in depth is one of training logits when N < D. With the pseudo-inverse in the "
        f"factors NGD has accuracy {', '.join(f'{v:.1f}' for v in deep)} % at L = 1, 2, 3, 4 "
        "(panel G), because it then tends to the shortest interpolant in the ℓ1 norm "
        "(docs/findings.md).",
        f"For N > D the linear program can be nearly degenerate: at t = {config.until:g} the D "
        "smallest margins of the flow are the program's basis in "
        f"{100 * arrays['path_basis'].mean():.0f} % of the flows followed, at "
        f"t = {1000 * config.until:g} in {100 * arrays['later_basis'].mean():.0f} %; a datum off "
        "the basis with slack δ is told from it only when tδ is large.",
        f"The paper's loop: one step takes {1e3 * step.min():.2f} to {1e3 * step.max():.2f} ms "
        f"here, so that 2 million for each point of the EGD curves would take {curves / 3600:.0f} "
        f"CPU hours; all cells of this figure took {float(arrays['all_cells_seconds']):.0f} s.",
        "The first 20 coefficients are all positive, which tied initialisations (all factors "
        "equal) would know beforehand; ours reach either sign.",
    ]


def _by_scale(config: Fig4, arrays: Arrays) -> str:
    """Return accuracies of Euler steps at `few` data, scale by scale."""
    at = arrays.coordinates["up_to_n"].index(config.few)
    found = 100 * arrays["overshoot_descent"][at].mean(axis=0)
    pairs = zip(config.overshoot_scales, found, strict=True)
    return ", ".join(f"{value:.0f} % (scale {scale:g})" for scale, value in pairs)


def _gaussian(config: Fig4, arrays: Arrays) -> str:
    """Return the range of accuracies from Gaussian factors over scales and data sets, N by N."""
    shallow, _ = gaussian_rivals(config, arrays)
    found = 100 * arrays["gaussian"][..., 1]
    return ", ".join(
        f"{found[:, i].min():.0f}–{found[:, i].max():.0f} % at N = {n} "
        f"(L = 1 {100 * shallow[i].mean():.0f} %)"
        for i, n in enumerate(config.observations)
    )


def _gains(arrays: Arrays) -> str:
    """Return the largest gain of accuracy after `until`, scale by scale."""
    gains = 100 * (arrays["gaussian"][..., 2] - arrays["gaussian"][..., 1]).max(axis=(1, 2))
    pairs = zip(arrays.coordinates["gaussian_scale"], gains, strict=True)
    return ", ".join(f"{gain:.1f} points (scale {scale:g})" for scale, gain in pairs)
