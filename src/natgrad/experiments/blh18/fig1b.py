"""[BLH18] Figure 1B: sixteen layers that widen and narrow."""

from natgrad.experiments.blh18.linear import DeepLinear, experiment
from natgrad.experiments.blh18.linear_claims import Promise
from natgrad.lab.registry import register

_WIDTHS = (*range(20, 100, 10), *range(100, 10, -10))

EXPERIMENT = register(
    experiment(
        "blh18/fig1b",
        "Sixteen linear layers, 20 to 100 to 20 wide: the natural gradient needs a pass or two",
        Promise(
            panel="B", rate=0.08, published=4, sgd=25, best=1.5, published_wins=True,
            decay_start="random", decay_rate=0.1,
        ),
        {
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
        minutes=7,
    )
)  # fmt: skip
