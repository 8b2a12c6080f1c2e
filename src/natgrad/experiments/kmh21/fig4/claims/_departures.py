"""Our choices for Figure 4 where the paper is silent, and where our numbers differ."""

from collections.abc import Sequence

from natgrad.experiments.kmh21._separable.curves import NGD, POPULATION, Table
from natgrad.experiments.kmh21.fig4.claims._explanations import gaussian_rivals, loop_seconds
from natgrad.experiments.kmh21.fig4.config import Fig4
from natgrad.lab.arrays import Arrays


def departures(config: Fig4, arrays: Arrays) -> Sequence[str]:
    """Return our choices, and where our numbers differ from the paper's text."""
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
        "Accuracy is exact, 1 − ∠(β, β*)/π for Gaussian inputs, so no test set is needed. Curves "
        f"are means over {config.seeds} data sets, bands one standard deviation.",
        f"EGD is gradient flow of the mean loss to t = {config.until:g}. The paper takes 2 million "
        "steps, which reach t = 10⁶ if each has length ½, but prints no step length. The flow "
        "starts from w₁ = 0 and the other factors "
        f"{', '.join(f'{s:g} (L = {d})' for d, s in zip(config.depths, config.scales, strict=True) if d > 1)}. "  # noqa: E501
        "The paper prints no initialization.",
        f"“At chance when N < D”: from β = 0 NGD reaches {mean(NGD)} at N = {few}, where it is "
        f"exactly the shortest interpolant, and falls to {mean(NGD, config.dim)} only at N = D. "
        "It is at chance for all N < D only from random coefficients of a large scale and with "
        "Euler steps (panel E). "
        f"At N = {few} steps of {config.overshoot_step:g} end at {_by_scale(config, arrays)}; the "
        "flow from the same coefficients loses nothing. The reason: a logit that starts at −10 "
        "has velocity e¹⁰, and one step makes it dominate all others. Initial logits have a "
        f"standard deviation of {config.dim**0.5:.0f} times the scale. N > D is left out, because "
        "the step has no closed form there.",
        f"“L = 4 on par with L = 1”: from the start above, L = 4 reaches {mean('EGD L=4')} at "
        f"N = {few}, and L = 1 {mean('EGD L=1')}. From Gaussian factors (panel D; data sets: "
        f"{config.slow_seeds}) L = 4 reaches {_gaussian(config, arrays)}. This is worse than "
        "from the constant start everywhere, and on par with L = 1 only at some N. Coordinates "
        "whose factors happen to start large grow first and separate the data. True ones that "
        "start small are then still near the saddle, and their gradient vanishes. More steps "
        f"change little: from t = {config.until:g} to {100 * config.until:g} accuracy gains at "
        f"most {_gains(arrays)}. At t = {config.until / 100:g} runs from a small start with many "
        "samples have not converged, as the paper guesses.",
        f"“NGD fails to learn the sparse structure”: at N = {most} the {config.ones} largest |β| "
        f"of NGD are the true features in {(named == 1).sum()} of {config.seeds} data sets, and "
        f"{100 * share.mean():.0f} % of ‖β‖ is on the true ones. At N = D "
        f"{100 * Table(arrays, 'named')(NGD, config.dim).mean():.0f} % of the largest are true.",
        "“Population Fisher worse than EGD”: it is worse than the deep networks, but at least as "
        f"good as EGD L = 1 at every N ({mean(POPULATION)} and {mean('EGD L=1')} at N = {few}).",
        f"L = 2 does not reach the ℓ1 max margin (accuracy "
        f"{100 * arrays['l1_accuracy'].mean():.1f} % at N = {few}), and its accuracy is higher: "
        f"its best accuracy along the path is {100 * late.max():.1f} %, and it falls to "
        f"{100 * late[-1]:.1f} % at t = {config.late:g} (panel F). The stopping time is "
        "part of the method.",
        "When N < D, only the training logits are invariant to depth. With the pseudo-inverse in "
        f"the factors NGD has accuracy {', '.join(f'{v:.1f}' for v in deep)} % at L = 1, 2, 3, 4 "
        "(panel G), because from L = 2 on it tends to the shortest interpolant in the ℓ1 norm "
        "(docs/findings.md).",
        f"For N > D the linear program can be nearly degenerate: at t = {config.until:g} the D "
        "smallest margins of the flow are those of the program's basis in "
        f"{100 * arrays['path_basis'].mean():.0f} % of the flows followed, at "
        f"t = {1000 * config.until:g} in {100 * arrays['later_basis'].mean():.0f} %. A sample "
        "outside the basis with slack δ can be distinguished from it only when tδ is large.",
        f"The paper's loop: one step takes {1e3 * step.min():.2f} to {1e3 * step.max():.2f} ms "
        f"here, so 2 million steps for each point of the EGD curves would take {curves / 3600:.0f} "
        f"CPU hours. All cells of this figure took {float(arrays['all_cells_seconds']):.0f} s.",
        f"The first {config.ones} coefficients are all positive. An initialization with equal "
        "factors would rely on this; ours can reach either sign.",
    ]


def _by_scale(config: Fig4, arrays: Arrays) -> str:
    """Return accuracies of Euler steps at N = `few`, scale by scale."""
    at = arrays.coordinates["up_to_n"].index(config.few)
    found = 100 * arrays["overshoot_descent"][at].mean(axis=0)
    pairs = zip(config.overshoot_scales, found, strict=True)
    return ", ".join(f"{value:.0f} % (scale {scale:g})" for scale, value in pairs)


def _gaussian(config: Fig4, arrays: Arrays) -> str:
    """Return, for each N, the range of accuracies from Gaussian factors."""
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
