"""Configs and presets of the atlas of separators: built-in data, or a table of your own."""

from dataclasses import dataclass

from natgrad.lab.experiment import Experiment, Preset, from_folder


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How long each optimizer runs."""

    steps: int = 20000
    """Steps of each descent."""
    saves: int = 200
    """States saved along each descent."""
    until: float = 1e12
    """Final time of gradient flows, on the mean loss."""

    def __post_init__(self) -> None:
        """Refuse numbers that leave nothing to measure."""
        from natgrad._checks import integer, number

        integer(self.saves, "saves", low=10)
        integer(self.steps, "steps", low=self.saves)
        number(self.until, "until", low=10)


@dataclass(frozen=True, kw_only=True)
class Separators(Effort):
    """Linear models of separable data, from zero, under every optimizer of the atlas."""

    n: int = 30
    """Number of samples."""
    dim: int = 20
    """Number of features; with fewer features than samples the natural limit is a vertex."""
    ones: int = 4
    """How many features the labels depend on."""
    seeds: tuple[int, ...] = tuple(range(20))
    """Seeds of the data."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A user's table of two classes, identified by its contents and its path."""

    path: str
    digest: str
    label: str
    classes: tuple[str, str] | None = None
    standardize: bool = True
    intercept: bool = True


@dataclass(frozen=True, kw_only=True)
class Own(Effort):
    """The optimizers of the atlas on a table of your own."""

    table: Table
    """The table, the column of labels, and how rows become inputs."""


EFFORTS: dict[Preset, Effort] = {
    "smoke": Effort(steps=600, saves=30, until=1e6),
    "quick": Effort(steps=3000, saves=100),
    "paper": Effort(),
}
"""The effort of each preset."""

EXPERIMENT = Experiment(
    name="atlas/separators",
    title="Each optimizer tends to the largest margin in its own norm, and natural gradient to a "
    "vertex",
    source="arXiv 2502.04664, 2510.26303, 2404.04454; natgrad",
    story="On separable data the loss has no minimum, and every optimizer could end anywhere. Each "
    "path runs to a star, which a solver of another kind has certified. The optimizer is a choice "
    "of the solution, not only of the speed.",
    presets={
        "smoke": Separators(steps=600, saves=30, until=1e6, seeds=(0,)),
        "quick": Separators(steps=3000, saves=100, seeds=tuple(range(3))),
        "paper": Separators(),
    },
    minutes={"smoke": 0.2, "quick": 1.0, "paper": 25.0},
    **from_folder(__package__, table=True),
)


def own(table: Table) -> Experiment[Own]:
    """Return the atlas of one table; its name begins with `map`."""
    from pathlib import Path

    stem = Path(table.path).stem or "table"
    return Experiment(
        name=f"map/{stem}",
        title=f"Which separator of {stem} each optimizer picks",
        source="natgrad atlas",
        presets={name: Own(**vars(effort), table=table) for name, effort in EFFORTS.items()},
        minutes={"smoke": 0.1, "quick": 1.0, "paper": 5.0},
        **from_folder(__package__, table=True),
    )
