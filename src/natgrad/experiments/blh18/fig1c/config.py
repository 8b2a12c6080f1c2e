"""Config and presets of [BLH18] Figure 1C."""

from natgrad.experiments.blh18._linear.config import DeepLinear, Panel
from natgrad.lab.experiment import Experiment, from_folder

_WIDTHS = (200, 80, 34, 20, 10, 5, 2, 5, 10, 20, 34, 80, 200)
PANEL = Panel(
    letter="C", rate=0.02, published=10, sgd=6, best=2.5, published_wins=False,
    sgd_fails=False, decay_start="random", decay_rate=0.5,
)  # fmt: skip

EXPERIMENT = Experiment(
    name="blh18/fig1c",
    title="A bottleneck slows the layerwise natural gradient; one step length per layer fixes it",
    source="[BLH18] Figure 1C",
    story="Two units in the middle make a bottleneck through which everything must pass. The "
    "layerwise natural gradient of the paper slows down there, at a rate that the widths "
    "predict. One step length per layer gives the speed back.",
    presets={
        "smoke": DeepLinear(
            widths=(12, 6, 2, 6, 12), power=3.0, examples=2_000, tests=500, natural_batch=200,
            passes=3, tuning_passes=1, decay_steps=80, seeds=1,
        ),
        "quick": DeepLinear(
            widths=_WIDTHS, power=40.0, passes=8, tuning_passes=2,
            decay_steps=150, seeds=2,
        ),
        "paper": DeepLinear(widths=_WIDTHS, power=40.0, decay_steps=200),
    },
    minutes={"smoke": 0.2, "quick": 0.5, "paper": 6},
    **from_folder(__package__),
)  # fmt: skip
