"""Running the model again on a part of the batch."""

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Module

from natgrad import Categorical
from natgrad.optim import NGD, Quadratic
from natgrad.optim.replay import Replay
from tests.helpers import randn
from tests.optim.nets import seeded


class Texts(Module):
    """A row of outputs for each position of each datum, and a record of how many data came."""

    def __init__(self, flat: bool) -> None:
        super().__init__()
        self.inner, self.flat = Linear(3, 2), flat
        self.seen: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        out = self.inner(x)
        return out.flatten(0, 1) if self.flat else out[:, 0]


@pytest.mark.parametrize(
    ("flat", "rows", "data"), [(True, 5, 1), (True, 7, 2), (True, None, 8), (False, 3, 3)]
)
def test_only_the_data_are_run_that_the_rows_belong_to(flat, rows, data):
    x, model = randn(8, 5, 3, seed=1), seeded(lambda: Texts(flat))
    replay = Replay(model, (x,), {})
    wanted = model(x)
    replay.remember(wanted)
    with torch.no_grad():
        assert torch.allclose(replay.outputs(rows), wanted[:rows])
        velocity = replay.velocity({"inner.bias": torch.ones_like(model.inner.bias)}, rows)
    assert torch.allclose(velocity, torch.ones_like(wanted[:rows]))
    assert model.seen == [8, data, data]


def test_the_length_is_measured_on_whole_texts():
    x, y = randn(8, 5, 3, seed=1), torch.randint(0, 2, (40,))
    model, criterion = seeded(lambda: Texts(flat=True)), Categorical()
    optimizer = NGD(model, criterion, step_length=Quadratic(rows=12))
    for _ in range(4):
        model.seen.clear()
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert not optimizer.statistics.refreshed
    assert model.seen[1] == 3  # and all of them, where the first are not like the rest
