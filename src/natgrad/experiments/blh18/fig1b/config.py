"""Config and presets of [BLH18] Figure 1B."""

from natgrad.experiments.blh18._linear.config import DeepLinear, Panel
from natgrad.lab.experiment import Experiment, from_folder

_WIDTHS = (*range(20, 100, 10), *range(100, 10, -10))
PANEL = Panel(
    letter="B", rate=0.08, published=4, sgd=25, best=1.5, published_wins=True,
    decay_start="random", decay_rate=0.1,
)  # fmt: skip

EXPERIMENT = Experiment(
    name="blh18/fig1b",
    title="Sixteen linear layers of width 20 to 100 to 20: the natural gradient needs a pass or "
    "two",
    source="[BLH18] Figure 1B",
    story="The layers now widen from 20 to 100 units and narrow to 20 again. SGD with its best "
    "learning rate is slow here too. The natural gradient needs a pass or two, because "
    "depth does not change the rate at which its error decays.",
    presets={
        "smoke": DeepLinear(
            widths=(8, 12, 16, 12, 8), power=2.0, examples=2_000, tests=500, natural_batch=200,
            passes=3, tuning_passes=1, decay_steps=40, seeds=1,
        ),
        "quick": DeepLinear(
            widths=_WIDTHS, power=5.0, passes=4, tuning_passes=1,
            decay_steps=60, seeds=2,
        ),
        "paper": DeepLinear(widths=_WIDTHS, power=5.0),
    },
    minutes={"smoke": 0.2, "quick": 0.5, "paper": 7},
    **from_folder(__package__),
)  # fmt: skip
