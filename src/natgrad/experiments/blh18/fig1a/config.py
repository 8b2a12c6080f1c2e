"""Config and presets of [BLH18] Figure 1A."""

from natgrad.experiments.blh18._linear.config import DeepLinear, Panel
from natgrad.lab.experiment import Experiment, from_folder

PANEL = Panel(
    letter="A", rate=0.08, published=9, sgd=25, best=3, published_wins=True,
    decay_start="near", decay_rate=0.1,
)  # fmt: skip

EXPERIMENT = Experiment(
    name="blh18/fig1a",
    title="Sixteen square linear layers: the natural gradient reaches the noise floor in a few "
    "passes",
    source="[BLH18] Figure 1A",
    story="A student of sixteen square linear layers learns from a linear teacher. SGD with its "
    "best learning rate is far from the noise floor when the figure ends. The natural "
    "gradient reaches the floor in a few passes over the data.",
    presets={
        "smoke": DeepLinear(
            widths=(8,) * 7, power=2.0, examples=2_000, tests=500, natural_batch=200, passes=3,
            tuning_passes=1, decay_steps=40, seeds=1,
        ),
        "quick": DeepLinear(
            widths=(20,) * 17, power=5.0, passes=8, tuning_passes=2,
            decay_steps=60, seeds=2,
        ),
        "paper": DeepLinear(widths=(20,) * 17, power=5.0),
    },
    minutes={"smoke": 0.2, "quick": 0.5, "paper": 4},
    **from_folder(__package__),
)  # fmt: skip
