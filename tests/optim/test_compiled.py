"""Models that torch.compile has wrapped."""

import pytest
import torch
from torch.nn import CrossEntropyLoss

from natgrad import Categorical, Gaussian
from natgrad.errors import InvalidInputError
from natgrad.optim import NGD
from tests.helpers import assert_near, generator, randn
from tests.optim.nets import mlp, seeded, train, weights_of

X, Y = randn(12, 3, seed=1), randn(12, 2, seed=2)


def compiled(model):  # type: ignore[no-untyped-def]
    return torch.compile(model, backend="aot_eager")


@pytest.mark.parametrize("options", [{}, {"refresh": 2}])
def test_a_compiled_model_takes_the_same_steps(options):
    ends = []
    for wrap in (lambda model: model, compiled):
        model, criterion = seeded(lambda: mlp(3, 6, 2)), Gaussian()
        optimizer = NGD(wrap(model), criterion, **options)
        losses = train(optimizer, criterion, X, Y, 13)
        assert optimizer.statistics.notes == []
        ends.append((weights_of(model), losses, list(optimizer.state_dict()["natural"])))
        names = optimizer.state_dict()["natural"]["preconditioner"]["layers"]
        assert list(names) == ["0", "2"]  # a checkpoint fits either
    assert ends[0][1] == pytest.approx(ends[1][1], rel=1e-6)
    for a, b in zip(ends[0][0], ends[1][0], strict=True):
        assert_near(a, b, 1e-5)


@pytest.mark.filterwarnings("ignore::natgrad.optim.AdaptationWarning")
def test_a_compiled_model_with_a_custom_loss():
    y = torch.randint(0, 2, (12,), generator=generator(3))
    model = compiled(seeded(lambda: mlp(3, 6, 2)))
    optimizer, criterion = NGD(model, Categorical(), reduction="mean"), CrossEntropyLoss()
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = criterion(model(X), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


def test_a_model_compiled_behind_the_optimizer_is_found_out():
    model, criterion = seeded(lambda: mlp(3, 6, 2)), Gaussian()
    optimizer = NGD(model, criterion)
    wrapped = compiled(model)
    criterion(wrapped(X), Y).backward()
    with pytest.raises(InvalidInputError, match="no batch"):
        optimizer.step()
