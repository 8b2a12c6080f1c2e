"""Config and presets of [KMH21] Figure 5."""

from dataclasses import dataclass

from natgrad.errors import InvalidInputError
from natgrad.lab.experiment import Experiment, from_folder


@dataclass(frozen=True, kw_only=True)
class Fig5:
    """A square matrix of low rank with some entries observed."""

    size: int = 100
    """Number of rows and of columns."""
    rank: int = 5
    """Rank of the matrix. Its entries have mean square one."""
    observed: tuple[int, ...] = (1000, 1250, 1500, 1750, 2000, 2250, 2500)
    """Numbers of observed entries."""
    depths: tuple[int, ...] = (2, 3, 4)
    """Numbers of factors of EGD; depth one is always included, in closed form."""
    scales: tuple[float, ...] = (1e-3, 1e-6, 1e-9)
    """Initial scales α: factors have standard deviation α^{1/L} / √size."""
    seeds: int = 5
    """Problems, each with its own matrix, observed entries and initial weights."""
    max_evaluations: int = 10_000
    """Gradients after which EGD stops, even if the observed entries do not fit yet."""
    few_observed: tuple[int, ...] = (1000, 1500, 2000, 2500)
    """Numbers of observed entries in the panels on starts, on equal shares and on the Fisher of
    the observed entries."""
    natural_depths: tuple[int, ...] = (2, 3)
    """Numbers of factors of NGD."""
    sample_seeds: int = 3
    """Problems for NGD with the Fisher of the observed entries."""
    flow_size: int = 24
    """Size of the matrices (rank 2) on which natural flow is integrated to a tight tolerance."""
    collapsed: tuple[tuple[int, int], ...] = ((2, 2), (2, 4), (2, 6), (3, 3), (3, 6))
    """Pairs: depth in training, and depth of the Gaussian product that training starts from."""
    collapsed_seeds: int = 40
    """Problems for these pairs."""
    dynamics_observed: int = 2000
    """Observed entries of the problem whose singular values are followed."""
    grid_size: int = 40
    """Size of the matrices (rank 2) in the search over step, damping, depth and scale."""
    grid_observed: int = 400
    """Observed entries in the search."""
    grid_steps: tuple[float, ...] = (0.1, 0.3, 1.0)
    """Step lengths η in the search."""
    grid_dampings: tuple[float, ...] = (0.0, 0.01, 0.1, 1.0, 10.0, 100.0)
    """Damping λ in the search."""
    grid_scales: tuple[float, ...] = (1e-3, 1.0)
    """Initial scales in the search."""
    grid_seeds: int = 3
    """Problems in the search."""
    product_depths: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16)
    """Depths of the random products whose effective rank is shown."""
    race: tuple[tuple[int, float, int], ...] = (
        (2, 1e-3, 2000),
        (2, 1e-9, 1500),
        (3, 1e-3, 1500),
        (3, 1e-3, 2000),
        (4, 1e-3, 2000),
    )
    """Depth, scale and observed entries of the cells on which an autograd loop runs to the end."""

    def __post_init__(self) -> None:
        """Refuse values that leave a claim without a number."""
        if not {2, 3} <= set(self.depths) or not {2, 3} <= set(self.natural_depths):
            raise InvalidInputError(
                "depths and natural_depths must contain 2 and 3, which the claims compare, but are "
                f"{self.depths} and {self.natural_depths}."
            )
        if not {(2, 2), (3, 3)} < set(self.collapsed):
            raise InvalidInputError(
                "collapsed must contain (2, 2), (3, 3) and pairs to compare them with, but is "
                f"{self.collapsed}."
            )


_SMALL = {
    "size": 20,
    "rank": 2,
    "observed": (140, 200),
    "scales": (1e-3,),
    "depths": (2, 3),
    "sample_seeds": 1,
    "flow_size": 6,
    "collapsed": ((2, 2), (2, 4), (3, 3), (3, 6)),
    "few_observed": (200,),
    "dynamics_observed": 200,
    "grid_size": 16,
    "grid_observed": 100,
    "grid_steps": (0.3,),
    "grid_dampings": (0.0, 1.0, 10.0),
    "grid_scales": (1e-3,),
    "grid_seeds": 1,
    "product_depths": (1, 2, 4),
    "max_evaluations": 2000,
    "race": ((2, 1e-3, 200),),
}

EXPERIMENT = Experiment(
    name="kmh21/fig5",
    title="Depth lets EGD complete matrices; NGD does so with the Fisher over the observed "
    "entries, but never with the Fisher over all entries",
    source="[KMH21] Figure 5, §4, Q&A",
    story="A matrix of low rank must be completed from some of its entries. Deep factorizations "
    "trained by gradient descent complete it, and the deeper ones need fewer entries. "
    "Natural gradient descent fails at every depth if its Fisher covers all entries, and "
    "succeeds if it covers only the observed ones.",
    presets={
        "smoke": Fig5(seeds=1, collapsed_seeds=3, **_SMALL),  # type: ignore[arg-type]
        "quick": Fig5(
            observed=(1000, 1500, 2000, 2500),
            scales=(1e-3, 1e-6),
            seeds=2,
            max_evaluations=5_000,
            sample_seeds=1,
            collapsed_seeds=10,
            grid_seeds=1,
            grid_steps=(0.3, 1.0),
            race=((2, 1e-3, 2000), (3, 1e-3, 2000)),
        ),
        "paper": Fig5(),
    },
    minutes={"smoke": 0.1, "quick": 1.5, "paper": 7.5},
    **from_folder(__package__),
)
