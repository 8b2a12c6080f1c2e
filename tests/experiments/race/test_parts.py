"""The clock, the draws, Muon and the networks, each against something independent."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from natgrad.errors import InvalidInputError
from natgrad.experiments.race import _clock as clocks
from natgrad.experiments.race import problems
from natgrad.experiments.race.config import CONTESTANTS, PEERS, PRESETS
from natgrad.experiments.race.entrants.muon import Muon, orthogonalized
from natgrad.experiments.race.entrants.peers import OPTIMIZERS
from natgrad.experiments.race.entrants.spaces import Space, space
from natgrad.experiments.race.outcomes import rank, ratio, reached
from natgrad.experiments.race.problems import networks
from natgrad.experiments.race.problems.networks import (
    Attention,
    Convolutions,
    Recurrent,
    Tied,
    Transformer,
    perceptron,
)
from natgrad.experiments.race.training import Settings


class Time:
    """A process time that products and work move on by set amounts."""

    def __init__(self) -> None:
        self.now, self.product = 0.0, clocks.NOMINAL

    def process_time(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch) -> Time:
    fake = Time()

    def matmul(*_, **__) -> None:
        fake.now += fake.product

    monkeypatch.setattr(clocks.time, "process_time", fake.process_time)
    monkeypatch.setattr(clocks.np, "matmul", matmul)
    return fake


def work(time: Time, clock: clocks.Clock, seconds: float) -> None:
    with clock.running():
        time.now += seconds


def test_a_slow_minute_counts_less(time):
    clock = clocks.Clock()
    work(time, clock, 0.4)
    assert clock.seconds == pytest.approx(0.4)
    time.product = 2 * clocks.NOMINAL  # other work begins on the machine
    work(time, clock, 0.8)  # the product is measured again before this
    assert clock.seconds == pytest.approx(0.4 + 0.4)


def test_measuring_takes_no_time(time):
    clock = clocks.Clock()
    for _ in range(50):
        work(time, clock, 0.1)
        time.now += 7.0  # a look at the validation data
    assert clock.seconds == pytest.approx(5.0)
    assert len(clock.products) >= 5 / 0.5


def test_draws_fill_the_space_and_are_the_same_for_all():
    first = Settings(lr=0.1, batch=2)
    space = Space(first=first, lr=(0.01, 1.0), batches=(1, 2, 3), horizons=(0.0, 1.0))
    drawn = space.draw(31)
    assert drawn == space.draw(31)
    rates = sorted(math.log10(s.lr) for s in drawn[1:])
    # One draw in each of thirty equal parts of the interval.
    cells = [min(int((rate + 2) / 2 * 30), 29) for rate in rates]
    assert len(set(cells)) >= 28
    assert {s.batch for s in drawn} == {1, 2, 3}
    assert {s.horizon for s in drawn} == {0.0, 1.0}
    assert all(s.damping is None and s.average is None for s in drawn)


@pytest.mark.parametrize("problem", PRESETS["paper"].problems)
@pytest.mark.parametrize("who", CONTESTANTS)
def test_every_contestant_has_a_space(who, problem):
    drawn = space(who, problem, (1, 2, 3, 4)).draw(8)
    assert len(drawn) == 8
    assert all(1 <= s.batch <= 4 for s in drawn)
    assert len(set(drawn)) > 1
    if who in PEERS:
        assert len({s.momentum for s in drawn}) > 1
        assert {s.average for s in drawn} == {None, 6.0}


def test_a_better_muon_is_in_reach():
    """Momentum 0.8, an average of the weights and an orthogonalized head, at a rate of 0.05."""
    found = space("Muon", "transformer", (8, 16, 32, 64))
    low, high = found.lr
    assert low < 0.05 < high
    assert 0.8 in found.momenta
    assert 6.0 in found.averages
    assert found.heads == (False, True)
    model = Transformer(vocabulary=11, context=4)
    settings = Settings(lr=0.05, batch=16, momentum=0.8, head=True, average=6.0)
    matrices, rest = OPTIMIZERS["Muon"](model, settings)
    assert any(p is model.head.weight for g in matrices.param_groups for p in g["params"])
    assert matrices.param_groups[0]["momentum"] == 0.8
    assert rest.param_groups[0]["lr"] == pytest.approx(0.01)


def test_a_rate_at_the_edge_widens_the_interval():
    found = space("AdamW", "table", (16, 32, 64, 264))
    low, high = found.lr
    tried = [(replace(found.first, lr=rate), 1.0 / rate) for rate in (low, high / 2, high)]
    beyond = found.refine(tried)
    assert beyond.lr == pytest.approx(2.5 * high)
    tried.append((beyond, 0.0))
    assert found.refine(tried).lr == pytest.approx(6.25 * high)  # and again
    tried[-1] = (beyond, math.inf)  # it diverged: the best has neighbors on both sides
    assert found.refine(tried).lr == pytest.approx(high / math.sqrt(2), rel=1e-2)


def test_tied_and_recurrent_weights_have_one_optimizer():
    for model in (Tied(vocabulary=11, context=4), Recurrent(vocabulary=11, width=8)):
        settings = Settings(lr=0.1, batch=16, momentum=0.9, head=True)
        found = [id(p) for o in OPTIMIZERS["Muon"](model, settings) for g in o.param_groups
                 for p in g["params"]]  # fmt: skip
        assert sorted(found) == sorted(id(p) for p in model.parameters())


@pytest.mark.parametrize("shape", [(6, 20), (20, 6), (8, 8)])
def test_orthogonalized_keeps_singular_vectors(shape):
    matrix = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    core = u.mT @ orthogonalized(matrix) @ vh.mT
    values = core.diagonal()
    assert (core - values.diag()).abs().max() < 1e-4
    assert values.min() > 0.5
    assert values.max() < 1.4


def test_muon_is_that_of_torch_but_for_precision():
    source = torch.Generator().manual_seed(1)
    ours = torch.randn(12, 5, generator=source).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    pair = (Muon([ours], lr=0.1), torch.optim.Muon([theirs], lr=0.1, weight_decay=0.0))
    for _ in range(3):
        gradient = torch.randn(12, 5, generator=source)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        for optimizer in pair:
            optimizer.step()
    assert (ours - theirs).abs().max() < 0.02  # bfloat16 has three digits; the steps sum to 0.3


def test_muon_takes_layers_and_adamw_the_rest():
    model = Transformer(vocabulary=11, context=4)
    settings = Settings(lr=0.1, batch=16, momentum=0.95, head=False)
    matrices, rest = OPTIMIZERS["Muon"](model, settings)
    taken = [id(p) for o in (matrices, rest) for g in o.param_groups for p in g["params"]]
    assert sorted(taken) == sorted(id(p) for p in model.parameters())
    muon = {id(p) for g in matrices.param_groups for p in g["params"]}
    assert muon == {id(p) for name, p in model.named_parameters() if "body" in name and p.ndim == 2}


def test_attention_is_that_of_torch():
    torch.manual_seed(0)
    attention = Attention(width=8, heads=2)
    x = torch.randn(3, 5, 8)
    q, k, v = attention.inward(x).view(3, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
    mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
    expected = attention.outward(mixed.transpose(1, 2).reshape(3, 5, 8))
    assert torch.allclose(attention(x), expected, atol=1e-6)


def test_the_transformer_sees_no_future():
    torch.manual_seed(0)
    model = Transformer(vocabulary=7, context=6)
    tokens = torch.randint(7, (2, 6))
    later = tokens.clone()
    later[:, 4:] = (later[:, 4:] + 1) % 7
    before, after = (model(t).view(2, 6, 7) for t in (tokens, later))
    assert torch.allclose(before[:, :4], after[:, :4], atol=1e-6)
    assert not torch.allclose(before[:, 4:], after[:, 4:], atol=1e-3)


def test_sizes_of_networks():
    count = [
        sum(p.numel() for p in m.parameters()) for m in (perceptron(10, 32, 1), Convolutions())
    ]
    assert count == [10 * 32 + 32 + 32 + 1, 416 + 4640 + 1568 * 128 + 128 + 1290]


def test_new_networks_have_two_hundred_thousand_weights():
    made = (networks.ResNet(), networks.siren(2, 264, 4), networks.Variational())
    texts = (networks.Tied(95, 64), networks.Recurrent(95))
    for model in (*made, *texts):
        assert sum(p.numel() for p in model.parameters()) >= 200_000


def test_half_of_the_problems_were_not_developed_on():
    names = PRESETS["paper"].problems
    assert len(names) == 10
    assert len(problems.DEVELOPED) == 5
    assert set(problems.DEVELOPED) < set(names) <= set(problems.ABOUT)


def test_parts_of_a_problem_do_not_overlap():
    problem = problems.load("table")
    rows = [{tuple(x) for x in part.x.tolist()} for part in (problem.train, problem.validation)]
    rows.append({tuple(x) for x in problem.test.x.tolist()})
    assert [len(r) for r in rows] == [264, 89, 89]
    assert len(set.union(*rows)) == 442


def test_a_score_is_the_loss_over_outputs():
    problem = problems.load("digits")
    model = problem.make(seed=3)
    x = problem.validation.x
    score, error = problem.score(model, problem.validation)
    output = model(x).detach()
    assert score == pytest.approx(float(((output - x) ** 2).mean()), rel=1e-5)
    assert math.isnan(error)
    assert score == pytest.approx(2 * float(problem.loss(output, x)) / 64, rel=1e-5)


def test_the_transformer_problem():
    problem = problems.load("transformer")
    x, y = problem.batch(problem.train, torch.arange(2))
    model = problem.make(seed=0)
    assert len(model(x)) == len(y) == 2 * 64
    assert torch.equal(x.flatten()[1:64], y[:63])  # what follows is the label
    score, error = problem.score(model, problem.test)
    assert 3 < score < 6  # near the logarithm of a hundred characters
    assert 0.8 < error <= 1


def test_an_unknown_problem():
    with pytest.raises(InvalidInputError, match="autoencoder"):
        problems.load("chess")


def test_the_first_crossing_counts():
    at, score = torch.arange(5.0).numpy(), torch.tensor([8.0, 2.0, 0.5, 4.0, 0.1]).numpy()
    assert reached(at, score, 1.0) == pytest.approx(1.5)
    assert reached(at, score, 9.0) == 0.0


def test_ranks():
    fast, slow = rank(1.0, torch.ones(2).numpy()), rank(2.0, torch.zeros(2).numpy())
    near, far = rank(math.nan, torch.ones(2).numpy()), rank(math.nan, 2 * torch.ones(2).numpy())
    assert sorted([far, near, slow, fast]) == [fast, slow, near, far]


@pytest.mark.parametrize(
    ("other", "ours", "value", "bound"),
    [
        ([2.0, 8.0], [1.0, 1.0], 4.0, ""),
        ([2.0, math.nan], [1.0, 1.0], math.sqrt(20), ">"),
        ([1.0, 1.0], [math.nan, 2.0], math.sqrt(0.1 * 0.5), "<"),
        ([math.nan, 1.0], [1.0, math.nan], 1.0, "?"),
        ([math.nan, 3.0], [math.nan, 1.0], 3.0, ""),
    ],
)
def test_ratios_with_runs_that_did_not_arrive(other, ours, value, bound):
    found = ratio(other, ours, budget=10.0)
    assert found.value == pytest.approx(value)
    assert found.bound == bound
    assert found.low <= found.value <= found.high


def test_neither_arrived():
    assert str(ratio([math.nan], [math.nan], 10.0)) == "neither reached it"
