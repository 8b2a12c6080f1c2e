"""What a criterion sees of a model's outputs: reshaped, sliced, masked, one of several."""

import pytest
import torch
from torch import Tensor
from torch.nn import BatchNorm1d, Dropout, Linear, Module, Sequential, Tanh

from natgrad import Bernoulli, Categorical, Gaussian
from natgrad.optim import NGD, Quadratic
from natgrad.optim._capture.selection import Output, Selection
from natgrad.optim._capture.selection import locate as locate_output
from tests.helpers import F64, for_each, generator, randn
from tests.optim.nets import mlp, seeded, train

MASK = torch.tensor([[True, False, True], [False, True, True], [True, True, True]] * 2)
PLACES = torch.tensor([2, 0, 1, 1, 2, 0])[:, None, None].expand(6, 1, 4)
SEEN = {
    "itself": lambda f: f,
    "view": lambda f: f.view(-1, 4),
    "transposed": lambda f: f.transpose(1, 2),
    "the last position": lambda f: f[:, -1],
    "masked": lambda f: f[MASK],
    "masked, in another order": lambda f: f.transpose(0, 1)[MASK.mT],
    "columns": lambda f: f[..., 1:3].reshape(6, -1),
    "gathered": lambda f: f.gather(1, PLACES),
    "pieces side by side": lambda f: torch.cat([f[:, 0], f[:, 2]], 1),
}
COMPUTED = {
    "doubled": lambda f: 2 * f,
    "summed": lambda f: f.sum(1),
    "normalized": lambda f: f.log_softmax(2),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_places_are_those_of_the_numbers(dtype):
    leaf = randn(6, 3, 4, seed=1).to(dtype).requires_grad_()
    output = leaf * 1.5
    other = (3 * leaf).sum(2)

    def check(name: str) -> None:
        seen = SEEN[name](output)
        found = locate(seen, [other, output])
        assert found is not None
        assert found.source == 1
        assert torch.equal(found.of([other, output]), seen)
        again = [randn(6, 3, seed=2).to(dtype), randn(6, 3, 4, seed=3).to(dtype)]
        assert torch.equal(found.of(again), SEEN[name](again[1]))

    for_each(list(SEEN), check)
    for_each(list(COMPUTED), lambda name: _refused(COMPUTED[name](output), output))
    assert locate(torch.cat([output.flatten(), other.flatten()]), [output, other]).source == -1


def locate(seen: Tensor, outputs: list[Tensor]) -> Selection | None:
    return locate_output(seen, [Output.of(output) for output in outputs], None)


def _refused(seen: Tensor, output: Tensor) -> None:
    assert locate(seen, [output]) is None


def test_more_numbers_than_the_dtype_counts():
    """bfloat16 counts to 256; places beyond are sent in several digits."""
    output = torch.arange(70000).to(torch.bfloat16).requires_grad_() * 1.0
    found = locate(output.flip(0), [output])
    assert torch.equal(found.index, torch.arange(70000).flip(0))


class Sequences(Module):
    """Outputs for every position, in a nest with other things."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(3, 8, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, dict[str, Tensor]]]:
        return x.sum(), (x.mean(1), {"f": self.net(x)})


def _run(select, labels: Tensor, steps: int = 15) -> NGD:  # type: ignore[no-untyped-def]
    x, model, criterion = randn(6, 3, 3, seed=4), seeded(Sequences), Categorical()
    optimizer = NGD(model, criterion, step_length=Quadratic())
    for _ in range(steps):
        loss = criterion(select(model(x)[1][1]["f"]), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert not any("equal shares" in note for note in optimizer.statistics.notes)
    return optimizer


def test_reshaped_sliced_and_masked_outputs_are_measured():
    """The length is that of the quadratic model, not of equal shares."""
    labels = torch.randint(0, 4, (6, 3), generator=generator(5))

    def check(name: str) -> None:
        select, y = {
            "view": (SEEN["view"], labels.view(-1)),
            "last": (SEEN["the last position"], labels[:, -1]),
            "masked": (SEEN["masked"], labels[MASK]),
        }[name]
        assert _run(select, y).statistics.loss < 0.2

    for_each(["view", "last", "masked"], check)


class Noisy(Module):
    """A network that draws random numbers in its forward, as a variational autoencoder does."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.first, self.last = kind, Linear(5, 6), Linear(6, 3)
        self.drop, self.seen = Dropout(0.3), list[int]()

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        h = self.first(x).tanh()
        h = self.drop(h) if self.kind == "dropout" else h + 0.5 * torch.randn_like(h)
        return self.last(h)


@pytest.mark.parametrize("kind", ["dropout", "noise"])
def test_a_model_that_draws_noise_is_repeated_whole(kind):
    """125 of 128 rows draw other numbers than all of them, although 64 do not."""

    def check(n: int) -> None:
        torch.manual_seed(n)
        model, criterion = seeded(lambda: Noisy(kind), dtype=torch.float32), Gaussian()
        x, y = (randn(n, k, seed=k, dtype=torch.float32) for k in (5, 3))
        optimizer = NGD(model, criterion, lr=1e-3, step_length=Quadratic())
        for _ in range(2):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            assert set(model.seen) == {n}
            assert abs(optimizer.statistics.ratio - 1) < 0.1

    for_each([2, 3, 16, 100, 128, 251, 300], check)


def test_a_small_batch_first_does_not_cut_the_noise_of_a_larger_one():
    torch.manual_seed(0)
    model, criterion = seeded(lambda: Noisy("noise")), Gaussian()
    optimizer = NGD(model, criterion, lr=1e-3, step_length=Quadratic())
    for n in (4, 128, 300, 16):
        optimizer.zero_grad()
        criterion(model(randn(n, 5, seed=1)), randn(n, 3, seed=2)).backward()
        optimizer.step()
        found = optimizer.statistics
        assert found.ratio is None or abs(found.ratio - 1) < 0.3


class Residual(Module):
    """u″ − f of a network u, differentiated in its own forward."""

    def __init__(self) -> None:
        super().__init__()
        self.u = Sequential(Linear(1, 12), Tanh(), Linear(12, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        u = self.u(x)
        (first,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
        return torch.cat([second + 1, 5 * self.u(torch.zeros_like(x))], 1)


def test_a_residual_inside_the_forward_is_measured():
    x, model = torch.linspace(-1, 1, 30, dtype=F64)[:, None], seeded(Residual)
    criterion = Gaussian()
    optimizer = NGD(model, criterion, step_length=Quadratic())
    losses = train(optimizer, criterion, x, torch.zeros(30, 2, dtype=F64), 25)
    assert losses[-1] < 0.02 * losses[0]
    assert not any("equal shares" in note for note in optimizer.statistics.notes)


class Heads(Module):
    """Two heads on one trunk."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.norm = Linear(3, 8), BatchNorm1d(8)
        self.classes, self.value = Linear(8, 2), Linear(8, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.norm(self.trunk(x)).tanh()
        return self.classes(h), self.value(h)


def test_one_criterion_on_two_heads_covers_both():
    """The second call on one forward reaches its own head; neither is dropped."""
    x, model, criterion = randn(40, 3, seed=1), seeded(Heads), Bernoulli()
    y = torch.sign(x[:, 0])
    optimizer = NGD(model, criterion, strict=True, step_length=Quadratic())
    for _ in range(20):
        a, b = model(x)
        loss = criterion(a[:, 0], y) + 0.5 * criterion(b, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert set(optimizer._core.preconditioner.blocks) == {"trunk", "norm", "classes", "value"}
    assert float(loss.detach()) < 0.1
