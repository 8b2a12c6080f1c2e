"""Running the model again on a part of the batch."""

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Module

from natgrad import Categorical
from natgrad.optim import NGD, Quadratic
from natgrad.optim._capture.replay import Replay
from tests.helpers import generator, randn
from tests.optim.nets import seeded


class Texts(Module):
    """A row of outputs for each position of each sample, and a record of how many samples came."""

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
    replay = replay.giving(wanted)
    with torch.no_grad():
        assert torch.allclose(replay.outputs(rows), wanted[:rows])
    assert model.seen == [8, data]
    assert replay.each == (5 if flat else 1)


class Masked(Texts):
    """Texts with a mask that has more rows than there are texts."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return super().forward((mask @ x).tanh())


class Ragged(Texts):
    """Texts of unequal length: positions that are all zero are left out."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[x.flatten(0, 1).abs().sum(1) > 0]


class Named(Texts):
    """Takes a dictionary, which cannot be cut."""

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return super().forward(batch["x"])


def _ragged(long: int) -> Tensor:
    """Return 8 texts, the first ones of two positions, the last ones of five."""
    x = randn(8, 5, 3, seed=1)
    x[: 8 - long, 2:] = 0
    return x


X = randn(8, 5, 3, seed=1)
MASK = torch.ones(5, 5, dtype=X.dtype).tril()
LONG = randn(3, 40, 3, seed=2)
CASES = {
    # A model, and the arguments of its batches.
    "a mask": (Masked, [(X, MASK), (LONG, torch.ones(40, 40, dtype=X.dtype).tril())]),
    "unequal lengths": (Ragged, [(_ragged(2),), (_ragged(4),), (X,)]),
    "equal lengths first": (Ragged, [(X,), (_ragged(4),), (_ragged(2),)]),
    "a dictionary": (Named, [({"x": X},), ({"x": LONG},)]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_length_is_that_of_the_whole_batch_where_it_cannot_be_cut(name):
    make, batches = CASES[name]
    lengths = {}
    for rows in (12, 1000):
        model, criterion = seeded(lambda: make(flat=True)), Categorical()
        optimizer = NGD(model, criterion, step_length=Quadratic(rows=rows), damping=0.1)
        lengths[rows] = []
        for args in batches * 4:
            output = model(*args)
            labels = (output[:, 0] > 0.1).long()
            loss = criterion(output, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert not any("equal shares" in note for note in optimizer.statistics.notes)
            lengths[rows].append(optimizer.statistics.length)
    assert all(length > 0 for length in lengths[12])
    if name in ("unequal lengths", "a dictionary"):
        assert lengths[12] == pytest.approx(lengths[1000], rel=1e-6)


def test_the_length_is_measured_on_whole_texts():
    x, y = randn(8, 5, 3, seed=1), torch.randint(0, 2, (40,), generator=generator(2))
    model, criterion = seeded(lambda: Texts(flat=True)), Categorical()
    optimizer = NGD(model, criterion, step_length=Quadratic(rows=12), damping=0.1)
    for _ in range(4):
        model.seen.clear()
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert not optimizer.statistics.refreshed
    assert model.seen[1] == 3  # and all of them, where the first are not like the rest


def test_a_mask_that_has_as_many_rows_as_a_later_batch_is_not_cut():
    criterion, model = Categorical(), seeded(lambda: Masked(flat=True))
    optimizer = NGD(model, criterion, step_length=Quadratic(rows=10))
    mask = torch.ones(5, 5, dtype=torch.float64).tril()
    for n in (8, 8, 5):
        model.seen.clear()
        y = torch.randint(0, 2, (5 * n,), generator=generator(n))
        criterion(model(randn(n, 5, 3, seed=n), mask), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert min(model.seen) == 5


def test_a_first_batch_of_one_sample_says_nothing_about_larger_ones():
    criterion, model = Categorical(), seeded(lambda: Texts(flat=False))
    optimizer = NGD(model, criterion, step_length=Quadratic(rows=3))
    for n in (1, 1, 8):
        model.seen.clear()
        y = torch.randint(0, 2, (n,), generator=generator(n))
        criterion(model(randn(n, 5, 3, seed=n)), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert min(model.seen) == 3
