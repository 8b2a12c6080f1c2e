"""Config and presets of the atlas of square loss."""

from dataclasses import dataclass

from natgrad.lab.experiment import Experiment, from_folder


@dataclass(frozen=True, kw_only=True)
class Square:
    """Interpolation by natural flows with every damping, and by two metrics in regression."""

    n: int = 10
    """Number of samples of diagonal networks."""
    dim: int = 20
    """Number of features, more than samples."""
    depths: tuple[int, ...] = (2, 3)
    """Depths of diagonal networks."""
    dampings: tuple[float, ...] = (0.0, 0.01, 1.0, 1000.0)
    """λ of natural flow; gradient flow is compared with them."""
    side: int = 5
    """Rows and columns of the matrix products."""
    observed: int = 12
    """Observed entries of the matrix products."""
    samples: int = 100
    """Number of samples of regression."""
    features: int = 200
    """Number of features of regression."""
    draws: int = 200
    """Draws of regression problems."""
    seeds: tuple[int, ...] = tuple(range(20))
    """Seeds of the networks."""


EXPERIMENT = Experiment(
    name="atlas/square",
    title="Square loss: natural flow with any damping keeps the interpolant of gradient flow, in "
    "diagonal networks but not in matrix products",
    source="natgrad, docs/findings.md; arXiv 2006.10732",
    story="With fewer samples than features many networks interpolate. In diagonal networks "
    "gradient flow and natural flow with every damping end at the same one; in products of "
    "matrices they part. In linear regression the metric alone decides, and which metric predicts "
    "better depends on noise and alignment.",
    presets={
        "smoke": Square(seeds=(0, 1), draws=50),
        "quick": Square(seeds=tuple(range(6))),
        "paper": Square(),
    },
    minutes={"smoke": 0.1, "quick": 0.3, "paper": 1.0},
    **from_folder(__package__),
)
