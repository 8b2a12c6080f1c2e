"""Config and presets of flows under other metrics."""

from dataclasses import dataclass

from natgrad.lab.experiment import Experiment, from_folder


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Flows of logistic regression under approximate Fishers and Wasserstein metrics."""

    n: int = 40
    """Number of samples."""
    dim: int = 20
    """Number of features, fewer than samples."""
    wide: int = 60
    """Number of features of the data with fewer samples than features."""
    classes: int = 3
    """Number of classes for K-FAC of several classes."""
    damping: float = 0.1
    """λ of K-FAC."""
    kappas: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    """κ of the metric (p(1 − p))^κ with more samples than features."""
    means: tuple[str, ...] = ("geometric", "logarithmic", "arithmetic")
    """Means of the Wasserstein metrics (p(1 − p))²/θ with more samples than features."""
    wide_kappas: tuple[float, ...] = (0.5, 0.9, 1.0, 1.1, 1.5, 2.0)
    """κ with fewer samples than features."""
    length: float = 1e5
    """Length of each path."""
    seeds: tuple[int, ...] = tuple(range(20))
    """Seeds of the data, and of the starts."""


EXPERIMENT = Experiment(
    name="atlas/metrics",
    title="The metric is the bias: each has its own margin, and the population Fisher freezes",
    source="natgrad, docs/findings.md; arXiv 1803.07033 for the metrics",
    story="Replace the Fisher by K-FAC, its diagonal, its population mean or a Wasserstein metric. "
    "The first two end at the largest margin in a norm of their own, the third stops turning "
    "before it reaches any, and the last switches limits at κ = 1. The metric decides the "
    "separator.",
    presets={
        "smoke": Metrics(seeds=(0, 1)),
        "quick": Metrics(seeds=tuple(range(6))),
        "paper": Metrics(),
    },
    minutes={"smoke": 0.1, "quick": 0.3, "paper": 1.0},
    **from_folder(__package__),
)
