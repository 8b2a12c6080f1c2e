"""One run: what counts as training time, when it ends, and which data it uses."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import BatchNorm1d, Linear, Sequential

from natgrad.errors import NonFiniteError
from natgrad.experiments.race import problems, training
from natgrad.experiments.race.config import PEERS, PUBLISHED, TORCH
from natgrad.experiments.race.entrants import kfac_jax_child
from natgrad.experiments.race.entrants.ngd import Natural, natural
from natgrad.experiments.race.entrants.peers import Peer, peer
from natgrad.experiments.race.entrants.spaces import space
from natgrad.experiments.race.problems import networks
from natgrad.experiments.race.problems.networks import Convolutions, Transformer
from natgrad.experiments.race.training import Run, Settings, train

pytestmark = pytest.mark.usefixtures("counted")

RUN = Run(
    problem="table",
    method="SGD",
    settings=Settings(lr=0.1, batch=32, momentum=0.0),
    seed=0,
    budget=0.32,
    points=8,
    test=False,
    machine="",
)


@pytest.mark.parametrize("who", TORCH)
def test_every_contestant_learns(who):
    settings = space(who, "table", problems.load("table").batches).first
    runner = peer if who in PEERS else natural
    curve = runner(replace(RUN, method=who, settings=replace(settings, horizon=0.0)))
    assert curve["score"].min() < 0.85 * curve["score"][0]
    assert curve["steps"].tolist() == [0, 4, 8, 12, 16, 20, 24, 28, 32]
    assert np.allclose(curve["seconds"], 0.01 * curve["steps"])


def small(kind: str) -> problems.Problem:
    """Four labels that can be told from the inputs, for the larger networks of the race."""
    source = torch.Generator().manual_seed(0)
    if kind == "pictures":
        y = torch.randint(4, (64,), generator=source)
        x = torch.rand(64, 784, generator=source) + 0.5 * torch.nn.functional.one_hot(y, 784)
        x[:, :400] += y[:, None] / 4
        part = problems.Part(x, y)
        return problems.Problem("categories", Convolutions, part, part, part, (16, 16, 32, 64))
    x = torch.randint(4, (64, 8), generator=source)
    part = problems.Part(x, x)
    network = partial(Transformer, vocabulary=4, context=8)
    return problems.Problem("categories", network, part, part, part, (16, 16, 32, 64))


@pytest.mark.parametrize("kind", ["pictures", "texts"])
@pytest.mark.parametrize("who", TORCH)
def test_every_contestant_learns_with_larger_networks(who, kind):
    problem = small(kind)
    settings = replace(space(who, "classifier", problem.batches).first, horizon=0.0)
    start = Peer if who in PEERS else Natural
    curve = train(
        replace(RUN, method=who, settings=settings, budget=0.12, points=3), problem, start
    )
    assert curve["score"].min() < 0.97 * curve["score"][0]


def test_the_same_run_gives_the_same_curve():
    a, b = (peer(RUN)["score"] for _ in range(2))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, peer(replace(RUN, seed=1))["score"])


@pytest.mark.parametrize("points", [1, 3, 5, 6, 10, 35])
def test_there_is_a_step_between_looks(points):
    curve = peer(replace(RUN, points=points, budget=0.1))
    assert len(curve["steps"]) <= points + 1
    assert (np.diff(curve["steps"]) > 0).all()
    assert curve["steps"][-1] == 10


def test_a_diverged_run_ends():
    curve = peer(replace(RUN, settings=Settings(lr=1e4, batch=32, momentum=0.0)))
    assert curve["score"][-1] == np.inf
    assert np.isfinite(curve["score"][:-1]).all()


def test_a_refused_step_ends_the_run():
    class Refusing:
        def __init__(self, run, problem, model) -> None:
            self.steps = 0

        def step(self, x, y) -> None:
            self.steps += 1
            if self.steps > 7:
                raise NonFiniteError("too far")

        def scale(self, factor) -> None: ...

        def judged(self):
            return nullcontext()

        def size(self) -> int:
            return 0

    curve = train(RUN, problems.load("table"), Refusing)
    assert curve["steps"].tolist() == [0, 4, 7]
    assert curve["score"][-1] == np.inf


def test_a_trial_never_looks_at_test_data():
    problem = problems.load("table")
    hidden = replace(problem, test=None)
    curve = train(RUN, hidden, Peer)
    assert np.isnan(curve["test"])
    final = train(replace(RUN, test=True), problem, Peer)
    assert 0 < final["test"] < 1.5


def test_validation_data_are_not_learned_from():
    problem = problems.load("table")
    blank = torch.full_like(problem.validation.x, float("nan"))
    spoilt = replace(problem, validation=problems.Part(blank, problem.validation.y))
    model = problem.make(0)
    learner = Peer(RUN, spoilt, model)
    for rows in torch.arange(len(spoilt.train)).split(32):
        learner.step(*spoilt.batch(spoilt.train, rows))
    assert all(bool(p.isfinite().all()) for p in model.parameters())


def test_the_rate_follows_the_budget():
    seen = []

    class Watched(training.Learning):
        def __init__(self, run, problem, model) -> None:
            super().__init__(problem, model, run.settings)

        def step(self, x, y) -> None: ...

        def scale(self, factor) -> None:
            seen.append(factor)

    train(
        replace(RUN, settings=Settings(lr=1.0, batch=32, horizon=0.5)),
        problems.load("table"),
        Watched,
    )
    expected = [max(0.01, 0.5 * (1 + np.cos(np.pi * min(1.0, k / 16)))) for k in range(32)]
    assert np.allclose(seen, expected, atol=1e-6)


@pytest.mark.parametrize("who", ["SGD", "NGD"])
def test_the_average_is_judged(who):
    """Both averages are θ̄ ← θ̄ + (a/(k + a))(θ − θ̄), of weights and of running averages."""
    problem = problems.load("table")
    model = Sequential(Linear(10, 4), BatchNorm1d(4), Linear(4, 1))
    settings = Settings(lr=0.1, batch=64, momentum=0.8, average=10.0)
    run = replace(RUN, method=who, settings=settings)
    learner = (Peer if who == "SGD" else Natural)(run, problem, model)

    def held() -> list[Tensor]:
        return [t.detach().clone() for t in model.state_dict().values() if t.is_floating_point()]

    expected = held()
    for k in range(1, 4):
        learner.step(*problem.batch(problem.train, torch.arange(64)))
        expected = [a + 10 / (k + 10) * (b - a) for a, b in zip(expected, held(), strict=True)]
    last = held()
    with learner.judged():
        for a, b in zip(expected, held(), strict=True):
            assert torch.allclose(a, b, atol=1e-6)
    assert all(torch.equal(a, b) for a, b in zip(last, held(), strict=True))


def test_the_published_method_is_judged_by_its_last_weights():
    problem = problems.load("table")
    settings = space(PUBLISHED, "table", problem.batches).first
    learner = Natural(replace(RUN, method=PUBLISHED, settings=settings), problem, problem.make(0))
    assert type(learner.judged()) is nullcontext


def test_bytes_of_state():
    """Adam has two numbers per weight and a count per tensor, SGD without momentum nothing."""
    problem = problems.load("table")
    weights = sum(p.numel() for p in problem.make(0).parameters())
    tensors = len(list(problem.make(0).parameters()))
    sizes = {}
    for who, settings in {
        "plain": Settings(lr=0.1, batch=32, momentum=0.0),
        "averaged": Settings(lr=0.1, batch=32, momentum=0.0, average=6.0),
        "AdamW": Settings(lr=1e-3, batch=32, momentum=0.9),
    }.items():
        method = "SGD" if who != "AdamW" else who
        sizes[who] = int(peer(replace(RUN, method=method, settings=settings))["bytes"])
    assert sizes == {"plain": 0, "averaged": 4 * weights, "AdamW": 8 * weights + 4 * tensors}
    natural_size = int(natural(replace(RUN, method="NGD", settings=Settings(batch=32)))["bytes"])
    assert natural_size > 3 * 4 * weights


def test_bytes_of_state_in_objects():
    """Shampoo has two matrices per side of a weight, and momentum; a column has one side."""
    settings = Settings(lr=1e-3, batch=32, momentum=0.9)
    found = int(peer(replace(RUN, method="Shampoo", settings=settings))["bytes"])
    weights = list(problems.load("table").make(0).parameters())
    sides = sum(side**2 for w in weights if w.ndim == 2 and 1 not in w.shape for side in w.shape)
    assert found >= 4 * (2 * sides + sum(w.numel() for w in weights))


def test_every_contestant_learns_a_variational_autoencoder():
    source = torch.Generator().manual_seed(0)
    x = (torch.rand(64, 784, generator=source) < torch.rand(784, generator=source)).float()
    part = problems.Part(x, x)
    network = partial(networks.Variational, width=16, codes=4)
    problem = problems.Problem("variational", network, part, part, part, (16, 16, 32, 64))
    model = problem.make(0)
    assert problem.score(model, part) == pytest.approx(problem.score(model, part), nan_ok=True)
    for who in (*PEERS, "NGD tuned"):
        settings = replace(space(who, "vae", problem.batches).first, horizon=0.0)
        start = Peer if who in PEERS else Natural
        curve = train(
            replace(RUN, method=who, settings=settings, budget=0.4, points=2), problem, start
        )
        assert curve["score"][-1] < 0.97 * curve["score"][0], who


class Halving:
    """Halves its score at every step."""

    def __init__(self, factor: float = 0.5) -> None:
        self.value, self.factor = 8.0, factor

    def step(self) -> None:
        self.value *= self.factor
        sum(range(20_000))  # some CPU time

    def score(self, x) -> float:
        return self.value


JOB = {"budget": 0.01, "points": 4}


def test_the_peers_process_keeps_the_same_rules():
    curve, clock = kfac_jax_child.race(JOB, Halving(), None)
    seconds, scores, steps = (np.array(c) for c in zip(*curve, strict=True))
    assert np.allclose(scores, 8.0 * 0.5**steps)
    assert seconds[-1] == clock.seconds >= 0.01
    assert len(curve) <= 5
    diverged, _ = kfac_jax_child.race(JOB, Halving(1e9), None)
    assert [score for _, score, _ in diverged] == [8.0, np.inf]


def test_the_peers_batches():
    x = np.arange(10)
    found = kfac_jax_child.batches(x, 4, seed=0)
    first = np.concatenate([next(found), next(found)])
    assert len(set(first.tolist())) == 8
