"""kfac-jax on an autoencoder: runs in a separate environment without natgrad.

    python -I kfac_jax_child.py FOLDER

reads `job.json` and `data.npz` in the folder and writes `curve.npz`. Compilation does not count.
"""

import json
import math
import os
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

_WARM_UP = 12  # steps after which every branch of the optimizer is compiled
_WORSE = 1e3


def main(folder: Path) -> None:
    """Train as the job says, and write the curve."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core for all threads of XLA
    begun = time.time()
    job = json.loads((folder / "job.json").read_text())
    data = np.load(folder / "data.npz")
    weights = [(data[f"weight{i}"].T.copy(), data[f"bias{i}"].copy()) for i in range(job["layers"])]
    learner = Learner(job, data["train"], weights)
    compiled = time.time() - begun
    curve, clock = race(job, learner, data["validation"])
    test = learner.score(data["test"]) if job["test"] else math.nan
    seconds, scores, steps = (np.array(column) for column in zip(*curve, strict=True))
    np.savez(
        folder / "curve.npz",
        seconds=seconds,
        score=scores,
        steps=steps,
        test=np.array(test),
        test_error=np.array(math.nan),
        product=np.array(clock.product),
        begun=np.array(begun),
        compilation=np.array(compiled),
    )


class Learner:
    """A network of linear layers and tanh, trained by kfac-jax with everything adaptive."""

    def __init__(self, job: dict[str, Any], x: Any, weights: list[Any]) -> None:
        jax, jnp, kfac_jax = map(import_module, ("jax", "jax.numpy", "kfac_jax"))

        def network(params: Any, x: Any) -> Any:
            for weight, bias in params[:-1]:
                x = jnp.tanh(x @ weight + bias)
            return x @ params[-1][0] + params[-1][1]

        def loss(params: Any, batch: Any) -> Any:
            output = network(params, batch)
            kfac_jax.register_squared_error_loss(output, batch, weight=0.5)
            return 0.5 * jnp.sum((output - batch) ** 2) / len(batch)

        self._jax, self._x, self._job = jax, x, job
        self._squares = jax.jit(lambda params, x: jnp.sum((network(params, x) - x) ** 2))
        self._optimizer = kfac_jax.Optimizer(
            jax.value_and_grad(loss),
            l2_reg=0.0,
            use_adaptive_learning_rate=True,
            use_adaptive_momentum=True,
            use_adaptive_damping=True,
            initial_damping=job["damping"],
            multi_device=False,
        )
        self._begin(weights)
        for _ in range(_WARM_UP):
            self.step()
        self.score(x[:1000])
        self._begin(weights)

    def _begin(self, weights: list[Any]) -> None:
        jax = self._jax
        self._batches = batches(self._x, self._job["batch"], self._job["seed"])
        self._params = jax.tree_util.tree_map(jax.numpy.array, weights)
        key = jax.random.PRNGKey(self._job["seed"])
        self._state = self._optimizer.init(self._params, key, next(self._batches))
        self._key = key

    def step(self) -> None:
        """Learn from a batch."""
        self._key, key = self._jax.random.split(self._key)
        self._params, self._state, _ = self._optimizer.step(
            self._params, self._state, key, data_iterator=self._batches
        )
        self._jax.block_until_ready(self._params)

    def score(self, x: Any) -> float:
        """Return the mean squared error of an output."""
        parts = [x[i : i + 1000] for i in range(0, len(x), 1000)]
        return sum(float(self._squares(self._params, part)) for part in parts) / float(x.size)


def race(job: dict[str, Any], learner: Learner, validation: Any) -> tuple[list[Any], Any]:
    """Return (seconds, score, steps) at each evaluation, and the clock."""
    spec = spec_from_file_location("clock", Path(__file__).parents[1] / "_clock.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    clock = module.Clock()
    budget, points = job["budget"], job["points"]
    curve = [(0.0, learner.score(validation), 0)]
    steps, due = 0, [*(budget * k / points for k in range(1, points)), budget]
    while clock.seconds < budget and math.isfinite(curve[-1][1]):
        while clock.seconds < due[0]:
            with clock.running():
                learner.step()
            steps += 1
        score = learner.score(validation)
        fine = math.isfinite(score) and score <= _WORSE * curve[0][1]
        curve.append((clock.seconds, score if fine else math.inf, steps))
        due = [at for at in due if at > clock.seconds]
    return curve, clock


def batches(x: Any, size: int, seed: int) -> Iterator[Any]:
    """Yield batches, in a new order in each epoch; none is short."""
    source = np.random.default_rng(seed)
    while True:
        order = source.permutation(len(x))
        for i in range(0, len(x) - size + 1, size):
            yield x[order[i : i + size]]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
