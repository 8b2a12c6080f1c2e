"""[BLH18] Figure 1A: sixteen square layers."""

from natgrad.experiments.blh18.linear import DeepLinear, experiment
from natgrad.experiments.blh18.linear_claims import Promise
from natgrad.lab.registry import register

EXPERIMENT = register(
    experiment(
        "blh18/fig1a",
        "Sixteen square linear layers: the natural gradient is at the noise floor in few passes",
        Promise(
            panel="A", rate=0.08, published=9, sgd=25, best=3, published_wins=True,
            decay_start="near", decay_rate=0.1,
        ),
        {
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
        minutes=4,
    )
)  # fmt: skip
