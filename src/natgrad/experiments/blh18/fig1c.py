"""[BLH18] Figure 1C: a bottleneck of width two."""

from natgrad.experiments.blh18.linear import DeepLinear, experiment
from natgrad.experiments.blh18.linear_claims import Promise
from natgrad.lab.registry import register

_WIDTHS = (200, 80, 34, 20, 10, 5, 2, 5, 10, 20, 34, 80, 200)

EXPERIMENT = register(
    experiment(
        "blh18/fig1c",
        "A bottleneck slows the layerwise natural gradient; a step length per layer fixes it",
        Promise(
            panel="C", rate=0.02, published=10, sgd=6, best=2.5, published_wins=False,
            sgd_fails=False, decay_start="random", decay_rate=0.5,
        ),
        {
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
        minutes=6,
    )
)  # fmt: skip
