"""Criteria of torch's and custom ones, as likelihoods: values, gradients, Fishers, training."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import (
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    CTCLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    Linear,
    Module,
    MSELoss,
    MultiMarginLoss,
    NLLLoss,
    PoissonNLLLoss,
    SmoothL1Loss,
)

from natgrad import Categorical, Gaussian
from natgrad.errors import DtypeError, InvalidInputError, ShapeError
from natgrad.likelihoods import Likelihood
from natgrad.optim import NGD, Factors, Learned, Loss, Quadratic, diagnose
from natgrad.optim._criteria.observed import observed
from tests.helpers import F64, assert_near, for_each, generator, randn
from tests.optim.nets import mlp, seeded

INDEX = torch.tensor([0, 2, 1, 2, 3, 0])
PLACES = torch.randint(0, 4, (6, 5), generator=generator(1))
SOME = PLACES.masked_fill(torch.rand(6, 5, generator=generator(2)) < 0.3, -100)
SOFT = torch.softmax(randn(6, 4, seed=3), 1)
WEIGHT = torch.tensor([0.5, 1.0, 2.0, 0.1], dtype=F64)
ONES = (randn(6, 4, seed=4) > 0).double()
REAL, COUNTS = randn(6, 4, seed=5), torch.randint(0, 5, (6, 4), generator=generator(6)).double()

# A criterion, the shape of its outputs, labels. The Hessian in the outputs is the Fisher: the
# outputs are the natural parameters.
CANONICAL: dict[str, tuple[Callable[..., Module], tuple[int, ...], Tensor]] = {
    "cross-entropy": (CrossEntropyLoss, (6, 4), INDEX),
    "one sample": (CrossEntropyLoss, (4,), torch.tensor(2)),
    "class weights": (partial(CrossEntropyLoss, weight=WEIGHT), (6, 4), INDEX),
    "smoothed": (partial(CrossEntropyLoss, label_smoothing=0.2), (6, 4), INDEX),
    "smoothed, weights": (
        partial(CrossEntropyLoss, label_smoothing=0.2, weight=WEIGHT),
        (6, 4),
        INDEX,
    ),
    "soft labels": (CrossEntropyLoss, (6, 4), SOFT),
    "soft labels, weights, smoothed": (
        partial(CrossEntropyLoss, label_smoothing=0.1, weight=WEIGHT),
        (6, 4),
        SOFT,
    ),
    "positions": (CrossEntropyLoss, (6, 4, 5), PLACES),
    "ignored positions": (CrossEntropyLoss, (6, 4, 5), SOME),
    "ignored positions, weights, smoothed": (
        partial(CrossEntropyLoss, label_smoothing=0.1, weight=WEIGHT),
        (6, 4, 5),
        SOME,
    ),
    "another ignored index": (partial(CrossEntropyLoss, ignore_index=2), (6, 4), INDEX),
    "binary": (BCEWithLogitsLoss, (6, 4), ONES),
    "binary, one output": (BCEWithLogitsLoss, (6,), ONES[:, 0]),
    "binary, soft labels": (BCEWithLogitsLoss, (6, 4), SOFT),
    "binary, pos_weight": (partial(BCEWithLogitsLoss, pos_weight=WEIGHT), (6, 4), ONES),
    "binary, both weights": (
        partial(BCEWithLogitsLoss, pos_weight=WEIGHT, weight=1 + WEIGHT),
        (6, 4),
        SOFT,
    ),
    "squared": (MSELoss, (6, 4), REAL),
    "squared, one output": (MSELoss, (6,), REAL[:, 0]),
    "squared, images": (MSELoss, (6, 2, 3, 2), randn(6, 2, 3, 2, seed=7)),
    "counts": (PoissonNLLLoss, (6, 4), COUNTS),
    "counts, full": (partial(PoissonNLLLoss, full=True), (6, 4), COUNTS),
}


def heard(criterion: Module, output: Tensor, y: Tensor) -> tuple[Likelihood, Tensor, Tensor]:
    """What the optimizer hears of one call: the likelihood, rows with their graph, the loss."""
    found: list[tuple[Likelihood, Tensor, Tensor]] = []
    handles = observed(criterion).watch(
        lambda likelihood, rows, y, loss, *_: found.append((likelihood, rows, loss))
    )
    criterion(output, y)
    for handle in handles:
        handle.remove()
    criterion(output, y)
    assert len(found) == 1
    return found[0]


def pulled(rows: Tensor, output: Tensor, v: Tensor) -> Tensor:
    """Return v in the rows, back in the outputs."""
    return torch.autograd.grad(rows, output, v, retain_graph=True)[0]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_losses_gradients_and_fishers_are_those_of_torch(reduction):
    def check(name: str) -> None:
        make, shape, y = CANONICAL[name]
        criterion = make(reduction=reduction)
        output = randn(*shape, seed=8).requires_grad_()
        likelihood, rows, loss = heard(criterion, output, y)
        n = len(rows)
        labels = torch.empty(n, 0)
        assert_near(likelihood(rows, labels), loss, 1e-12)
        (gradient,) = torch.autograd.grad(loss, output, retain_graph=True)
        assert_near(pulled(rows, output, likelihood.gradient(rows, labels)), gradient, 1e-12)
        scale = likelihood.scale(n)
        hessian = torch.autograd.functional.hessian(lambda f: criterion(f, y), output.detach())
        hessian = hessian.reshape(output.numel(), -1)
        u = randn(*rows.shape, seed=9)
        product = scale * likelihood.fisher_product(rows.detach(), u)
        back = pulled(rows, output, u)  # the same velocity, as one of outputs
        assert_near(
            pulled(rows, output, product), (hessian @ back.reshape(-1)).reshape(shape), 1e-11
        )
        blocks = likelihood.fisher(rows.detach())
        assert_near(blocks.sum(0) / scale / n, likelihood.mean_fisher(rows.detach()), 1e-12)
        assert_near(torch.einsum("nij,nj->ni", blocks, u), product, 1e-12)
        part = max(1, n // 2)
        first = likelihood.fisher_product(rows.detach()[:part], u[:part])
        assert_near(scale * first, product[:part], 1e-12)
        root = likelihood.root(rows.detach())
        again = root.transpose(torch.exp(2 * root.log_weight) * root.apply(u))
        assert_near(scale * again, product, 1e-11)

    for_each(list(CANONICAL), check)


def test_sampled_errors_have_the_weighted_fisher_as_covariance():
    def check(name: str) -> None:
        make, shape, y = CANONICAL[name]
        output = randn(*shape, seed=8).requires_grad_()
        likelihood, rows, _ = heard(make(), output, y)
        f, total = rows.detach(), 0.0
        source = generator(10)
        for _ in range(4000):
            errors = likelihood.sampled_errors(f, generator=source)
            total = total + errors.mT @ errors / len(f) / 4000
        truth = likelihood.mean_fisher(f)
        assert float((total - truth).abs().max()) < 0.1 * float(truth.diagonal().max())

    for_each(["ignored positions, weights, smoothed", "binary, both weights", "counts"], check)


def test_log_probabilities_are_logits():
    """`NLLLoss` after log_softmax has the Fisher of `CrossEntropyLoss` on the logits."""
    for weight, y in ((None, INDEX), (WEIGHT, INDEX.masked_fill(INDEX == 3, -100))):
        logits, u = randn(6, 4, seed=8).requires_grad_(), randn(6, 4, seed=9)
        log_p = logits.log_softmax(1)
        ours, rows, loss = heard(NLLLoss(weight=weight), log_p, y)
        theirs, plain, wanted = heard(CrossEntropyLoss(weight=weight), logits, y)
        assert_near(loss, wanted, 1e-12)
        kept = u[y >= 0]
        moved = torch.autograd.functional.jvp(lambda f: f.log_softmax(1), logits[y >= 0], kept)[1]
        product = ours.fisher_product(rows.detach(), moved)
        back = torch.autograd.grad(rows, logits, product)[0][y >= 0]
        assert_near(back, theirs.fisher_product(plain.detach(), kept), 1e-11)
    with pytest.raises(InvalidInputError, match="log_softmax"):
        heard(NLLLoss(), logits, INDEX)


def test_a_divergence_of_log_probabilities_is_cross_entropy_with_soft_labels():
    """Up to the entropy of the labels, with the same Fisher in the logits; any leading axes."""

    def check(case: tuple[str, bool, tuple[int, ...]]) -> None:
        reduction, logged, shape = case
        logits, u = randn(*shape, seed=8).requires_grad_(), randn(*shape, seed=9)
        y = torch.softmax(randn(*shape, seed=3), -1)
        criterion = KLDivLoss(reduction=reduction, log_target=logged)
        log_p = logits.log_softmax(-1)
        ours, rows, loss = heard(criterion, log_p, y.log() if logged else y)
        assert_near(ours(rows, torch.empty(len(rows), 0)), loss, 1e-12)
        count = {"sum": 1, "batchmean": len(log_p)}[reduction]
        moved = torch.autograd.functional.jvp(lambda f: f.log_softmax(-1), logits, u)[1]
        product = ours.fisher_product(rows.detach(), moved.reshape(rows.shape))
        back = ours.scale(len(rows)) * torch.autograd.grad(rows, logits, product)[0]
        wanted = CrossEntropyLoss(reduction="sum")
        flat, labels = logits.detach().reshape(-1, shape[-1]), y.reshape(-1, shape[-1])
        hessian = torch.autograd.functional.hessian(lambda f: wanted(f, labels) / count, flat)
        exact = hessian.reshape(u.numel(), -1) @ u.reshape(-1)
        assert_near(back.reshape(-1), exact, 1e-11)

    for_each(
        [("batchmean", False, (6, 4)), ("sum", True, (6, 4)), ("batchmean", True, (3, 5, 4))], check
    )
    with pytest.raises(InvalidInputError, match="along the last axis"):
        heard(KLDivLoss(reduction="batchmean"), randn(6, 4, seed=8).requires_grad_(), SOFT)


def test_robust_losses_have_a_constant_fisher():
    """Huber's is the probability of a residual within δ, by quadrature of the score's square."""
    grid = torch.linspace(-80, 80, 2_000_001, dtype=F64)

    def truth(criterion: Module) -> float:
        leaf = grid.clone().requires_grad_()
        zero = torch.zeros_like(grid)
        energy = type(criterion)(**_options(criterion), reduction="none")(leaf, zero)
        (score,) = torch.autograd.grad(energy.sum(), leaf)
        unit = _unit(criterion)
        density = torch.exp(-energy.detach() * unit)
        return float((density * (score * unit) ** 2).sum() / density.sum()) / unit

    for criterion in (HuberLoss(delta=0.7), HuberLoss(delta=2.0), SmoothL1Loss(beta=0.5), L1Loss()):
        output = randn(6, 4, seed=8).requires_grad_()
        likelihood, rows, loss = heard(criterion, output, REAL)
        assert_near(likelihood(rows, torch.empty(6, 0)), loss, 1e-12)
        wanted = truth(criterion) / 4 * torch.eye(4, dtype=F64)
        assert_near(likelihood.mean_fisher(rows.detach()), wanted, 1e-4)


def _options(criterion: Module) -> dict[str, float]:
    return {k: getattr(criterion, k) for k in ("delta", "beta") if hasattr(criterion, k)}


def _unit(criterion: Module) -> float:
    """SmoothL1Loss is Huber's loss over β: β times it has a likelihood."""
    return getattr(criterion, "beta", 1.0)


@pytest.mark.parametrize("parts", [1, 3])
def test_the_average_over_outputs_is_understood(parts):
    """Steps with MSELoss, also in divided parts, are those with the Gaussian of its scale."""
    x, y = randn(60, 3, seed=1), randn(60, 20, seed=2)
    losses = {}
    for kind in ("torch", "ours"):
        model = seeded(lambda: mlp(3, 8, 20))
        covariance = 10 * torch.eye(20, dtype=F64)
        criterion = MSELoss() if kind == "torch" else Gaussian(covariance)
        optimizer = NGD(model, criterion)
        losses[kind] = []
        for _ in range(12):
            optimizer.zero_grad()
            for a, b in zip(x.chunk(parts), y.chunk(parts), strict=True):
                (criterion(model(a), b) / parts).backward()
            optimizer.step()
            losses[kind].append(optimizer.statistics.loss)
    assert losses["torch"] == pytest.approx(losses["ours"], rel=1e-6)
    assert losses["torch"][-1] < losses["torch"][0]


def test_torch_and_our_cross_entropy_take_the_same_steps():
    x, y = randn(40, 3, seed=1), torch.randint(0, 4, (40,), generator=generator(2))
    found = []
    for criterion in (CrossEntropyLoss(), Categorical()):
        model = seeded(lambda: mlp(3, 8, 4))
        optimizer = NGD(model, criterion)
        for _ in range(10):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
        found.append(optimizer.statistics)
    assert found[0].loss == pytest.approx(found[1].loss, rel=1e-6)
    assert not found[0].notes
    assert found[0].damping == pytest.approx(found[1].damping)


class Tagger(Module):
    """Logits for every position, padded ones too."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(3, 12, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


@pytest.mark.parametrize("shape", ["BTV", "BVT"])
def test_padding_does_not_count(shape):
    """Rows that are ignored leave no trace in the steps, whatever is in them."""
    x, y = randn(6, 5, 3, seed=1), SOME
    weights = []
    for noise in (0.0, 100.0):
        model, criterion = seeded(Tagger), CrossEntropyLoss()
        noisy = torch.where((y == -100)[:, :, None], x + noise, x)
        # The inputs of padded positions count in Λ; the last layer's errors do not see them.
        optimizer = NGD(model, criterion, strict=True)
        out = model(noisy)
        out, labels = (out.view(-1, 4), y.view(-1)) if shape == "BTV" else (out.mT, y)
        criterion(out, labels).backward()
        optimizer.step()
        assert not optimizer.statistics.notes
        errors = optimizer._core.preconditioner.blocks["net.2"].errors
        weights.append(errors.matrix.clone())
    assert_near(weights[0], weights[1], 1e-9)


class Focal(Module):
    """A custom loss with torch's ways of reducing it."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, f: Tensor, y: Tensor) -> Tensor:
        each = torch.nn.functional.cross_entropy(f, y, reduction="none")
        each = (1 - torch.exp(-each)) * each
        return each if self.reduction == "none" else each.mean()


UNREDUCED: dict[str, tuple[Callable[..., Module], tuple[int, ...], Tensor]] = {
    **{name: case for name, case in CANONICAL.items() if name != "one sample"},
    "custom": (Focal, (6, 4), INDEX),
}


def test_losses_without_reduction_are_as_if_reduced_by_the_caller():
    """Any weights, some of them zero: the loss and the Fisher, against dense derivatives."""

    def check(name: str) -> None:
        make, shape, y = UNREDUCED[name]
        criterion, found = make(reduction="none"), []
        output = randn(*shape, seed=8).requires_grad_()
        handles = observed(criterion).watch(
            lambda likelihood, rows, y, loss, *_, weight: found.append((likelihood, rows, weight))
        )
        losses = criterion(output, y)
        weights = torch.rand(losses.shape, dtype=F64, generator=generator(11))
        weights = weights * (torch.rand(losses.shape, generator=generator(12)) < 0.8)
        assert not found
        total = (weights * losses).sum()
        (gradient,) = torch.autograd.grad(total, output, retain_graph=True)
        ((likelihood, rows, factor),) = found
        handles[0].remove()
        n = len(rows)
        labels = torch.empty(n, 0)
        assert_near(factor * likelihood(rows, labels), total, 1e-12)
        found_gradient = pulled(rows, output, factor * likelihood.gradient(rows, labels))
        assert_near(found_gradient, gradient, 1e-12)
        if name == "custom":
            return
        hessian = torch.autograd.functional.hessian(
            lambda f: (weights * criterion(f, y)).sum(), output.detach()
        )
        u = randn(*rows.shape, seed=9)
        product = factor * likelihood.fisher_product(rows.detach(), u)
        back = pulled(rows, output, u).reshape(-1)
        exact = (hessian.reshape(output.numel(), -1) @ back).reshape(shape)
        assert_near(pulled(rows, output, product), exact, 1e-11)
        part = max(1, n // 2)
        first = likelihood.gradient(rows.detach()[:part], labels[:part])
        assert_near(first, likelihood.gradient(rows.detach(), labels)[:part], 1e-12)

    for_each(list(UNREDUCED), check)


def test_a_mask_of_losses_takes_the_steps_of_ignored_labels():
    """A mask after `reduction="none"`, against `ignore_index`; weights of either sign train."""
    x, y = randn(40, 3, seed=1), torch.randint(0, 4, (40,), generator=generator(2))
    kept = torch.rand(40, generator=generator(3)) < 0.6
    steps = []
    for reduction in ("mean", "none"):
        model = seeded(lambda: mlp(3, 8, 4))
        criterion = CrossEntropyLoss(reduction=reduction)
        optimizer = NGD(model, criterion)
        for _ in range(8):
            optimizer.zero_grad()
            if reduction == "mean":
                loss = criterion(model(x), y.masked_fill(~kept, -100))
            else:
                loss = (criterion(model(x), y) * kept).sum() / kept.sum()
            loss.backward()
            optimizer.step()
            assert optimizer.statistics.loss == pytest.approx(float(loss.detach()))
        steps.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert_near(steps[1], steps[0], 1e-9)
    optimizer.zero_grad()
    (criterion(model(x), y) * randn(40, seed=4)).mean().backward()
    optimizer.step()
    assert all(p.isfinite().all() for p in model.parameters())


def test_custom_losses_are_measured_and_verified():
    """A mixture density network: three outputs, a loss that is no likelihood of ours."""
    x = torch.linspace(-1, 1, 80, dtype=F64)[:, None]
    y = x + 0.3 * torch.sin(6 * x) + 0.1 * randn(80, 1, seed=3)

    def mixture(parts: tuple[Tensor, ...], y: Tensor) -> Tensor:
        logits, mean, log_sigma = parts
        inner = -0.5 * ((y - mean) / log_sigma.exp()) ** 2 - log_sigma
        return -torch.logsumexp(logits.log_softmax(1) + inner, 1).mean()

    class Mixture(Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(1, 16, 9)

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return self.net(x).chunk(3, 1)

    model, criterion = seeded(Mixture), Loss(mixture)
    optimizer = NGD(model, criterion, strict=True, step_length=Quadratic())
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        assert not any("equal shares" in note for note in optimizer.statistics.notes)
    assert losses[-1] < -0.3 < losses[0]


def test_custom_products_are_the_second_derivative_or_squares():
    output, y = randn(5, 3, seed=1).requires_grad_(), randn(5, 3, seed=2)
    criterion = Loss(lambda f, y: torch.log(torch.cosh(f - y)).sum(1).mean())
    likelihood, rows, loss = heard(criterion, output, y)
    u = randn(5, 3, seed=3)
    exact = u / torch.cosh(output - y) ** 2
    assert_near(likelihood.fisher_product(rows.detach(), u), exact, 1e-10)
    drawn = likelihood.sampled_errors(rows.detach())
    assert_near(drawn.square(), 1 / torch.cosh(output - y) ** 2, 1e-10)
    assert_near(likelihood(rows, y), loss, 1e-12)
    # An absolute error has no second derivative.
    likelihood, rows, _ = heard(Loss(lambda f, y: (f - y).abs().sum(1).mean()), output, y)
    sign = torch.sign(output - y)
    squares = sign * (sign * u).sum(1, keepdim=True)
    assert_near(likelihood.fisher_product(rows.detach(), u), squares, 1e-10)
    assert_near(likelihood.sampled_errors(rows.detach()), sign, 1e-10)


def test_losses_that_torch_differentiates_once_have_their_squared_errors():
    output, y = randn(6, 4, seed=1).requires_grad_(), INDEX
    likelihood, rows, loss = heard(MultiMarginLoss(), output, y)
    errors = 6 * torch.autograd.grad(loss, output)[0]
    u = randn(6, 4, seed=3)
    assert_near(likelihood.sampled_errors(rows.detach()), errors, 1e-12)
    squares = errors * (errors * u).sum(1, keepdim=True)
    assert_near(likelihood.fisher_product(rows.detach(), u), squares, 1e-12)


def test_outputs_that_depend_on_each_other_have_partial_derivatives():
    """A code and its decoding: what the loss says of the code is not what its decoding costs."""
    code = randn(3, 2, seed=1).requires_grad_()
    decoded = code @ randn(2, 70, seed=2)

    def energy(f: Tensor, code: Tensor) -> Tensor:
        return ((f.square().sum(1) - 1).square() + code.square().sum(1)).mean()

    likelihood, rows, _ = heard(Loss(energy), decoded, code)
    errors = likelihood.sampled_errors(rows.detach(), generator=generator(3))
    wanted = torch.cat([4 * (decoded.square().sum(1, keepdim=True) - 1) * decoded, 2 * code], 1)
    assert_near(errors, wanted, 1e-10)


@pytest.mark.parametrize("outputs", [3, 70])
@pytest.mark.parametrize("source", ["sampled", "exact"])
@pytest.mark.parametrize("step_length", [Learned(), Quadratic()])
def test_a_custom_loss_with_a_matrix_of_its_own_trains_under_autocast(step_length, source, outputs):
    own = torch.randn(outputs, 4, generator=generator(1))
    criterion = Loss(lambda f, y: (f @ own - y).square().mean())
    model = seeded(lambda: mlp(5, 8, outputs), dtype=torch.float32)
    optimizer = NGD(model, criterion, step_length=step_length, factors=Factors(source=source))
    x, y = (torch.randn(16, k, generator=generator(k)) for k in (5, 4))
    losses = []
    for _ in range(8):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0]


def test_a_custom_loss_keeps_no_graph_and_may_work_in_place():
    output, y = (3 * randn(6, 3, seed=1).requires_grad_()), randn(6, 3, seed=2)
    criterion = Loss(lambda f, y: f.sub_(y).square().mean() / 2)
    likelihood, rows, _ = heard(criterion, output, y)
    held = [cell.cell_contents for cell in likelihood._loss.__closure__]
    tensors = [t for found in held if isinstance(found, dict) for t in found.values()]
    assert tensors
    assert not any(isinstance(t, Tensor) and t.requires_grad for t in tensors)
    found = likelihood.sampled_errors(rows.detach(), generator=generator(3))
    assert_near(found.square(), torch.full((6, 3), 1 / 3, dtype=F64), 1e-12)


def test_a_custom_loss_of_an_empty_batch_is_refused():
    model, criterion = seeded(lambda: mlp(3, 2)), Loss(lambda f, y: (f - y).square().sum())
    _ = NGD(model, criterion)
    with pytest.raises(ShapeError, match="Is the batch empty"):
        criterion(model(torch.zeros(0, 3, dtype=F64)), torch.zeros(0, 2, dtype=F64))


def test_unaligned_sequences_train():
    """`CTCLoss`, whose batch is the second axis, and which has no second derivative."""
    model, criterion = seeded(lambda: Linear(6, 5), seed=4), CTCLoss()
    optimizer = NGD(model, criterion, strict=True)
    x, y = randn(9, 7, 6, seed=5), torch.randint(1, 5, (7, 3), generator=generator(6))
    lengths, labels = torch.full((7,), 9), torch.full((7,), 3)
    losses = []
    for _ in range(30):
        loss = criterion(model(x).log_softmax(2), y, lengths, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 2


def test_errors_of_a_custom_loss_have_its_second_derivative_as_second_moment():
    """Its absolute value, for every sample, against a dense Hessian; the loss is not convex."""

    def loss(f: Tensor, y: Tensor) -> Tensor:
        return (torch.cos(f[:, 0] * f[:, 1]) + f[:, 2] ** 2 * f[:, 0] + (f * y).sum(1)).mean()

    output, y, times = randn(4, 3, seed=1), randn(4, 3, seed=2), 10_000
    many = output.repeat_interleave(times, 0).requires_grad_()
    likelihood, rows, _ = heard(Loss(loss), many, y.repeat_interleave(times, 0))
    draws = likelihood.sampled_errors(rows, generator=generator(3)).reshape(4, times, 3)
    moment = torch.einsum("nsi,nsj->nij", draws, draws) / times
    whole = torch.autograd.functional.hessian(lambda f: 4 * loss(f, y), output)
    for n in range(4):
        values, vectors = torch.linalg.eigh(whole[n, :, n])
        assert values.min() < 0
        wanted = vectors @ torch.diag(values.abs()) @ vectors.mT
        assert_near(moment[n], wanted, 0.05)


def test_several_criteria_are_added():
    class Heads(Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk, self.label, self.value = Linear(3, 8), Linear(8, 3), Linear(8, 2)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.trunk(x).tanh()
            return self.label(h), self.value(h)

    x = randn(60, 3, seed=1)
    labels, values = (x[:, 0] > 0).long() + (x[:, 1] > 0).long(), x[:, :2].sin()
    model, criteria = seeded(Heads), (CrossEntropyLoss(), MSELoss())
    optimizer = NGD(model, criteria, strict=True, step_length=Quadratic())
    for _ in range(30):
        optimizer.zero_grad()
        a, b = model(x)
        loss = criteria[0](a, labels) + 0.3 * criteria[1](b, values)
        loss.backward()
        optimizer.step()
        assert not any("equal shares" in note for note in optimizer.statistics.notes)
    assert float(loss.detach()) < 0.1
    assert set(optimizer._core.preconditioner.blocks) == {"trunk", "label", "value"}


def test_what_is_not_a_criterion_is_refused():
    model = Linear(2, 1)
    for wrong, words in (
        (MSELoss, "Did you mean MSELoss"),
        (torch.nn.functional.mse_loss, "natgrad.optim.Loss"),
        (3.0, "must be a criterion"),
        ([], "must be a criterion"),
    ):
        with pytest.raises(DtypeError, match=words):
            NGD(model, wrong)
    unknown = MSELoss()
    unknown.reduction = "median"
    with pytest.raises(InvalidInputError, match="reduction='median'"):
        NGD(model, unknown)
    criterion = Loss(lambda f, y: f - y)
    _optimizer = NGD(model, criterion)
    with pytest.raises(ShapeError, match="must return one number"):
        criterion(model(torch.zeros(3, 2)), torch.zeros(3, 1))
    criterion = CrossEntropyLoss()
    _optimizer = NGD(Linear(2, 3), criterion)
    with pytest.raises(InvalidInputError, match="nothing to learn"):
        criterion(_optimizer.model(torch.zeros(3, 2)), torch.full((3,), -100))


def test_a_removed_optimizer_hears_nothing():
    model, criterion = Linear(2, 3), CrossEntropyLoss()
    optimizer = NGD(model, criterion)
    optimizer.remove()
    assert not criterion._forward_hooks


def test_a_torch_criterion_is_diagnosed():
    found = diagnose(Linear(2, 3), CrossEntropyLoss(), torch.randn(20, 2))
    assert [layer.name for layer in found.layers] == [""]


def test_the_fisher_of_a_vocabulary_is_never_formed(monkeypatch):
    monkeypatch.setattr("natgrad.optim._capture.moments._LARGEST_KNOWN", 3)
    monkeypatch.setattr(Categorical, "mean_fisher", lambda *_: pytest.fail("a full matrix"))
    model, criterion = seeded(lambda: mlp(3, 8, 4)), Categorical()
    optimizer = NGD(model, criterion)
    criterion(model(randn(20, 3, seed=1)), torch.arange(20) % 4).backward()
    optimizer.step()
    assert optimizer._core.preconditioner.blocks["2"].errors.known


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_errors_of_a_loss_that_treats_outputs_one_by_one_have_its_second_derivative(reduction):
    """Also with more outputs than a whole second derivative is computed for: by autograd."""
    f, y = randn(3, 90, seed=1).requires_grad_(), randn(3, 90, seed=2).sigmoid()

    def energy(f: Tensor, y: Tensor) -> Tensor:
        pixels = torch.nn.functional.binary_cross_entropy_with_logits(f, y, reduction="none")
        rows = pixels.sum(1) + (f[:, :4].exp() + f[:, 4:8].square()).sum(1)
        return getattr(rows, reduction)()

    likelihood, rows, _ = heard(Loss(energy, reduction=reduction), f, y)
    errors = likelihood.sampled_errors(rows.detach(), generator=generator(3))
    hessian = torch.autograd.functional.hessian(lambda g: energy(g, y), f.detach())
    scale = 3 if reduction == "mean" else 1
    wanted = scale * hessian.reshape(270, 270).diagonal().reshape(3, 90)
    assert_near(errors.square(), wanted, 1e-12)
    other = likelihood.sampled_errors(rows.detach(), generator=generator(4))
    assert not torch.equal(errors.sign(), other.sign())


def test_errors_of_other_losses_with_many_outputs_are_their_own():
    f, y = randn(3, 90, seed=1).requires_grad_(), randn(3, 90, seed=2)

    def energy(f: Tensor, y: Tensor) -> Tensor:
        return ((f - y).square().sum(1) + 0.01 * f[:, 0] * f[:, 1]).mean()

    likelihood, rows, _ = heard(Loss(energy), f, y)
    errors = likelihood.sampled_errors(rows.detach(), generator=generator(3))
    (gradient,) = torch.autograd.grad(energy(f, y), f)
    assert_near(errors, 3 * gradient, 1e-12)
