"""GaussNewton: every step against dense formulas, and what it says where it cannot step."""

import copy
import math

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, jacrev
from torch.nn import Linear, Module, Sequential, Tanh

import natgrad as ng
from natgrad.errors import DtypeError, InvalidInputError, NonFiniteError, UnsupportedError
from natgrad.likelihoods import Poisson
from natgrad.optim import AliasingWarning, GaussNewton, SlowRowsWarning
from natgrad.optim._levenberg.aliasing import Watch
from natgrad.optim._levenberg.momentum import Momentum
from natgrad.optim._levenberg.rule import Nielsen
from natgrad.optim._levenberg.solve import ConjugateGradients, ParameterSide, ResidualSide
from natgrad.optim._rows.record import Recorder
from tests.extensions import Student
from tests.helpers import assert_near, for_each, randn, signs
from tests.optim.nets import conv_net, images, mlp, seeded

X = randn(20, 3, seed=1)


def flat(net: Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


def dense_rows(net: Module, x: Tensor) -> Tensor:
    """∂ net(x)ₙₖ / ∂θ by torch.func, `(n, k, p)`."""
    params = {name: p.detach() for name, p in net.named_parameters()}
    found = jacrev(lambda p: functional_call(net, p, (x,)))(params)
    return torch.cat([found[name].flatten(2) for name in params], 2)


def steps(optimizer: GaussNewton, closure: object, count: int) -> float:
    """Take some steps; return the loss before the last."""
    for _ in range(count):
        loss = optimizer.step(closure)
    return loss


# Agreement ----------------------------------------------------------------------------------------


LIKELIHOODS = {
    "Gaussian": (ng.Gaussian(), 2, lambda: randn(20, 2, seed=3)),
    "Gaussian(Σ̃)": (
        ng.Gaussian(torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)),
        2,
        lambda: randn(20, 2, seed=3),
    ),
    "summed": (ng.Gaussian(reduction="sum"), 1, lambda: randn(20, 1, seed=3)),
    "Bernoulli": (ng.Bernoulli(), 1, lambda: signs(20, 3)[:, None]),
    "Categorical": (ng.Categorical(), 4, lambda: torch.arange(20) % 4),
    "Poisson": (Poisson(), 1, lambda: (torch.arange(20.0) % 3)[:, None].double()),
    "custom": (Student(), 1, lambda: randn(20, 1, seed=3)),
}


@pytest.mark.parametrize("solver", ["parameters", "residuals", "conjugate_gradients"])
def test_a_plain_step_is_the_damped_natural_direction(solver):
    def check(name: str) -> None:
        likelihood, k, labels = LIKELIHOODS[name]
        net, y = seeded(lambda: mlp(3, 6, k)), labels()
        damping = 0.05 if likelihood.reduction == "mean" else 2.0
        network = ng.Network(net)
        v = ng.natural(likelihood, network, network.init(), (X, y), damping=damping)
        truth = torch.cat([v[name].reshape(-1) for name, _ in net.named_parameters()])
        before = flat(net)
        optimizer = GaussNewton(net, likelihood, damping=damping, acceleration=0, solver=solver)
        loss = optimizer.step(lambda: (net(X), y))
        assert optimizer.statistics.status == "accepted", optimizer.statistics.reason
        assert_near(flat(net) - before, truth, 1e-10 if solver != "conjugate_gradients" else 1e-6)
        assert loss == pytest.approx(float(likelihood(functional(net, before, X), y)), rel=1e-12)
        assert optimizer.statistics.side == solver

    for_each(LIKELIHOODS, check)


def functional(net: Module, weights: Tensor, x: Tensor) -> Tensor:
    parts = torch.split(weights, [p.numel() for p in net.parameters()])
    shaped = {
        name: part.view_as(p) for (name, p), part in zip(net.named_parameters(), parts, strict=True)
    }
    return functional_call(net, shaped, (x,))


def test_convolutions_agree_with_the_natural_direction_too():
    net, x, y = seeded(conv_net), images(6), torch.arange(6) % 3
    network = ng.Network(net)
    v = ng.natural(ng.Categorical(), network, network.init(), (x, y), damping=0.1)
    before = flat(net)
    GaussNewton(net, ng.Categorical(), damping=0.1, acceleration=0).step(lambda: (net(x), y))
    truth = torch.cat([v[name].reshape(-1) for name, _ in net.named_parameters()])
    assert_near(flat(net) - before, truth, 1e-10)


@pytest.mark.parametrize("scaling", ["identity", "more"])
def test_an_accelerated_step_is_the_dense_formula(scaling):
    """Two blocks, one with a weight; the second derivative along v by torch.func."""
    net = seeded(lambda: mlp(3, 5, 2))
    targets, before, damping = randn(20, 2, seed=8), flat(net), 3.0
    weight = torch.cat([torch.full((20,), (1 / 20) ** 0.5), torch.full((20,), (4 / 20) ** 0.5)])
    A = weight.double()[:, None] * dense_rows(net, X).transpose(0, 1).flatten(0, 1)
    r = weight.double() * (net(X) - targets).detach().mT.reshape(-1)
    D = A.norm(dim=0) if scaling == "more" else torch.ones(A.shape[1], dtype=torch.float64)
    F = A.mT @ A + damping * torch.diag(D**2)
    v = torch.linalg.solve(F, -A.mT @ r)
    along = lambda t: weight.double() * functional(net, before + t * v, X).mT.reshape(-1)  # noqa: E731
    t0 = torch.zeros((), dtype=torch.float64)
    second = torch.func.jacfwd(torch.func.jacfwd(along))(t0)
    a = torch.linalg.solve(F, -A.mT @ second)

    optimizer = GaussNewton(net, damping=damping, scaling=scaling, acceleration=10.0)

    def closure() -> dict[str, object]:
        error = net(X) - targets
        return {"first": error[:, 0], "second": (error[:, 1], 4.0)}

    optimizer.step(closure)
    found = optimizer.statistics
    assert found.status == "accepted"
    # The optimizer measures r″ by a difference quotient, so a is right to a few percent only.
    assert_near(flat(net) - before - v, a / 2, 0.1)
    bend = float(2 * (D * a).norm() / (D * v).norm())
    assert found.acceleration == pytest.approx(bend, rel=0.1)
    assert found.predicted == pytest.approx(float(-v @ A.mT @ r - 0.5 * (A @ v) @ (A @ v)))
    assert found.loss == pytest.approx(float(0.5 * r @ r))
    assert found.losses["second"] == pytest.approx(float(0.5 * r[20:] @ r[20:]))


def test_momentum_centers_the_damping_at_the_last_step():
    net = seeded(lambda: mlp(3, 5, 1))
    y, mu, damping = randn(20, seed=3), 0.5, 30.0
    optimizer = GaussNewton(net, damping=damping, scaling="identity", acceleration=0, momentum=mu)
    closure = lambda: net(X)[:, 0] - y  # noqa: E731
    start = flat(net)
    optimizer.step(closure)
    p, middle = flat(net) - start, flat(net)
    A = dense_rows(net, X).flatten(0, 1) / 20**0.5
    r = closure().detach() / 20**0.5
    optimizer.step(closure)
    F = A.mT @ A + optimizer.statistics.damping * torch.eye(A.shape[1], dtype=torch.float64)
    v = mu * p + torch.linalg.solve(F, -A.mT @ (r + mu * A @ p))
    assert optimizer.statistics.status == "accepted"
    assert_near(flat(net) - middle, v)


def test_momentum_that_leads_upward_is_dropped_and_lowered():
    net, other = seeded(lambda: mlp(3, 5, 1)), seeded(lambda: mlp(3, 5, 1))
    y, damping = randn(20, seed=3), 30.0
    options = {"damping": damping, "scaling": "identity", "acceleration": 0.0}
    optimizer = GaussNewton(net, momentum=0.9, **options)
    closure = lambda: net(X)[:, 0] - y  # noqa: E731
    plain = GaussNewton(other, momentum=0, **options)
    optimizer.step(closure)
    plain.step(lambda: other(X)[:, 0] - y)
    optimizer._momentum.last = -40 * optimizer._momentum.last
    optimizer.step(closure)
    plain.step(lambda: other(X)[:, 0] - y)
    assert_near(flat(net), flat(other))
    assert optimizer._momentum.share == 0.5
    optimizer.step(closure)  # a good step that uses it raises the share again
    assert optimizer.statistics.ratio > 0.25
    assert optimizer._momentum.share == pytest.approx(0.55)


def test_the_share_of_momentum_grows_faster_on_a_plateau():
    momentum, step = Momentum(0.9), torch.ones(2)
    momentum.accepted(step, 1.0, 0.5)
    momentum.share = 0.5
    for decrease, share in ((0.2, 0.55), (0.01, 0.825), (0.01, 1.0)):
        assert_near(momentum.offered(), 0.9 * momentum.share * step)
        momentum.accepted(step, 1.0, decrease)
        assert momentum.share == pytest.approx(share)


def test_damping_falls_no_further_than_the_bend_of_the_path_allows():
    """Nielsen's factors at ρ = 1, ½ and 0, and the fraction of the largest bend as their bound."""

    def check(case: tuple[float, float, float]) -> None:
        ratio, bend, factor = case
        rule = Nielsen(6.0)
        rule.accepted(ratio, bend)
        assert rule.value == pytest.approx(6.0 * factor)

    cases = [(1.0, 0.0, 1 / 3), (1.0, 0.6, 0.6), (0.5, 0.9, 1.0), (0.0, 0.5, 2.0), (1.0, 3.0, 1.0)]
    for_each(cases, check)


# Sides and solvers --------------------------------------------------------------------------------


def test_sides_and_fallbacks_solve_one_problem():
    """Down to dampings where the longer side is singular and only QR keeps the digits."""
    net = seeded(lambda: mlp(3, 6, 2))
    params = list(net.parameters())
    scale = randn(sum(p.numel() for p in params), seed=8).abs() + 0.5  # 38 parameters
    recorder = Recorder(net, params, ["p"] * len(params))

    def check(case: tuple[int, float]) -> None:
        n, damping = case
        t = randn(2 * n, seed=7)
        (strips,) = recorder.jacobian({"block": recorder.run(lambda: net(X[:n]))})
        rows = torch.cat([recorder.assemble(strips).dense, damping**0.5 * torch.diag(scale)])
        right = torch.cat([t, t.new_zeros(len(scale))])
        truth = torch.linalg.lstsq(rows, right, driver="gelsd").solution
        for kind, longer in ((ParameterSide, n < 19), (ResidualSide, n > 19)):
            side = kind(recorder.assemble(strips), scale)
            tolerance = 1e-10 if damping > 1e-6 else 1e-5
            assert_near(side.solve(t, damping), truth, tolerance)
            v, moved = side.solve_and_move(t, damping)
            assert_near(v, truth, tolerance)
            assert_near(moved, rows[: len(t)] @ truth, tolerance)
            assert side.decomposed is (longer and damping < 1e-12)
        if damping > 1e-3:
            side = ConjugateGradients(recorder.assemble(strips), scale)
            v, moved = side.solve_and_move(t, damping)
            assert_near(v, truth, 1e-6)
            assert_near(moved, rows[: len(t)] @ truth, 1e-6)
            assert side.error < 1e-7

    for_each([(n, damping) for n in (10, 20) for damping in (1.0, 1e-2, 1e-5, 1e-18)], check)


def test_the_cheaper_side_is_taken():
    net = seeded(lambda: mlp(3, 4, 1))
    optimizer = GaussNewton(net)
    optimizer.step(lambda: net(X)[:, 0] - 1)
    assert optimizer.statistics.side == "residuals"  # 20 residuals, 21 parameters
    optimizer.step(lambda: net(X.repeat(3, 1))[:, 0] - 1)
    assert optimizer.statistics.side == "parameters"


# Runs ---------------------------------------------------------------------------------------------


class Poisson1d:
    """u″ = −π² sin πx on [0, 1], u = 0 at both ends."""

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float64) -> None:
        self.net = seeded(lambda: mlp(1, 10, 1), seed, dtype)
        self.x = torch.linspace(0, 1, 30, dtype=dtype)[:, None].requires_grad_()
        self.ends = torch.tensor([[0.0], [1.0]], dtype=dtype)

    def closure(self) -> dict[str, object]:
        u = self.net(self.x)
        (slope,) = torch.autograd.grad(u.sum(), self.x, create_graph=True)
        (bend,) = torch.autograd.grad(slope.sum(), self.x, create_graph=True)
        source = math.pi**2 * torch.sin(math.pi * self.x)
        return {"interior": bend + source, "ends": (self.net(self.ends), 4.0)}

    def error(self) -> float:
        truth = torch.sin(math.pi * self.x)
        return float((self.net(self.x) - truth).detach().abs().max())


def test_an_equation_is_solved_from_every_start():
    def check(seed: int) -> None:
        problem = Poisson1d(seed)
        optimizer = GaussNewton(problem.net)
        losses = [optimizer.step(problem.closure) for _ in range(60)]
        assert losses == sorted(losses, reverse=True)
        assert problem.error() < 1e-4

    for_each(range(6), check)


def test_a_run_resumes_bit_for_bit():
    def run(steps: int, resume_at: int | None) -> Tensor:
        problem = Poisson1d(3)
        optimizer = GaussNewton(problem.net, momentum=0.3, held_out=problem.closure)
        for step in range(steps):
            if step == resume_at:
                saved = copy.deepcopy((problem.net.state_dict(), optimizer.state_dict()))
                problem = Poisson1d(5)
                problem.net.load_state_dict(saved[0])
                optimizer = GaussNewton(problem.net, momentum=0.3, held_out=problem.closure)
                optimizer.load_state_dict(saved[1])
            optimizer.step(problem.closure)
        assert optimizer.statistics.step == steps
        return flat(problem.net)

    straight = run(25, None)
    statuses = []
    for stop in (1, 4, 9, 20):
        statuses.append(torch.equal(run(25, stop), straight))
    assert all(statuses)


def test_rejected_steps_leave_the_weights_alone_and_reuse_the_rows():
    problem = Poisson1d(0)
    optimizer = GaussNewton(problem.net, damping=1e-9, acceleration=0)
    before = flat(problem.net)
    optimizer.step(problem.closure)
    assert optimizer.statistics.status == "rejected"
    assert "rise" in optimizer.statistics.reason
    assert torch.equal(flat(problem.net), before)
    kept = optimizer._kept[1]
    optimizer.step(problem.closure)
    assert optimizer.statistics.status == "rejected"
    assert optimizer.statistics.damping == 2e-9
    assert optimizer._kept[1] is kept
    with torch.no_grad():  # other points at the same weights: the rows are computed again
        problem.x += 0.01
    optimizer.step(problem.closure)
    assert optimizer.statistics.loss != kept.loss


def test_paths_that_bend_are_damped_before_they_are_tried():
    problem = Poisson1d(0)
    optimizer = GaussNewton(problem.net, damping=1e-9, acceleration=0.5)
    optimizer.step(problem.closure)
    assert optimizer.statistics.damping > 1e-9
    bends = optimizer.statistics.acceleration
    assert bends <= 0.5 or "bends" in optimizer.statistics.reason


def test_unknown_coefficients_are_recovered():
    """u′ = −k u, u(0) = 1 with data u(1) = e⁻²: k = 2; a parameter of no layer."""
    net = seeded(lambda: mlp(1, 10, 1), seed=1)
    k = torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))
    x = torch.linspace(0, 1, 30, dtype=torch.float64)[:, None].requires_grad_()

    def closure() -> dict[str, Tensor]:
        u = net(x)[:, 0]
        (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        return {"equation": slope[:, 0] + k * u, "data": u[[0, -1]] - closure.data}

    closure.data = torch.tensor([1.0, math.exp(-2.0)], dtype=torch.float64)
    steps(GaussNewton(net, coefficients=[k]), closure, 80)
    assert k.item() == pytest.approx(2.0, abs=1e-5)


def test_new_points_are_drawn_every_few_steps():
    problem = Poisson1d(1)
    source, drawn = torch.Generator().manual_seed(0), []

    def resample() -> None:
        drawn.append(optimizer.statistics.step)
        with torch.no_grad():
            problem.x.copy_(torch.rand(30, 1, dtype=torch.float64, generator=source))

    optimizer = GaussNewton(problem.net, resample=resample)
    steps(optimizer, problem.closure, 80)
    assert drawn == list(range(0, 80, 10))
    assert problem.error() < 1e-3


def test_a_fit_that_converges_between_two_draws_goes_on():
    torch.manual_seed(0)
    net, x, y = Linear(3, 1).double(), X.clone(), randn(20, seed=2)
    optimizer = GaussNewton(net, resample=lambda: x.copy_(torch.randn_like(x)))
    statuses = []
    for _ in range(25):
        optimizer.step(lambda: net(x)[:, 0] - y)
        statuses.append(optimizer.statistics.status)
    assert statuses[9] == statuses[19] == "converged"
    assert statuses[10] == statuses[20] == "accepted"
    truth = torch.linalg.lstsq(torch.cat([x, torch.ones(20, 1)], 1), y[:, None]).solution[:, 0]
    assert torch.cat([net.weight[0], net.bias]).tolist() == pytest.approx(truth.tolist(), abs=1e-8)


def test_a_step_on_new_points_is_the_dense_one():
    net, damping = seeded(lambda: mlp(3, 5, 1)), 5.0
    batches = [randn(20, 3, seed=s) for s in (11, 12, 13)]
    points, left = [X], iter(batches)

    def resample() -> None:
        points[0] = next(left)

    optimizer = GaussNewton(
        net, damping=damping, scaling="identity", acceleration=0, momentum=0, resample=resample,
        resample_every=1, held_out=lambda: net(X)[:, 0] - 1,
    )  # fmt: skip
    for i, batch in enumerate(batches):
        before = flat(net)
        A = dense_rows(net, batch).flatten(0, 1) / 20**0.5
        r = (net(batch)[:, 0].detach() - 1) / 20**0.5
        held = float(0.5 * (net(X)[:, 0].detach() - 1).square().mean())
        optimizer.step(lambda: net(points[0])[:, 0] - 1)
        found = optimizer.statistics
        F = A.mT @ A + found.damping * torch.eye(A.shape[1], dtype=torch.float64)
        assert found.status == "accepted"
        assert found.loss == pytest.approx(float(0.5 * r @ r))
        assert_near(flat(net) - before, torch.linalg.solve(F, -A.mT @ r))
        assert found.held_out == (pytest.approx(held) if i == 0 else None)


# Honesty ------------------------------------------------------------------------------------------


def test_aliasing_is_announced_once_and_only_then():
    """Six points fix thirty parameters: the residual vanishes there and nowhere else."""
    dense = Poisson1d(0)
    sparse = Poisson1d(0)
    sparse.x = torch.linspace(0, 1, 4, dtype=torch.float64)[:, None].requires_grad_()
    dense.net = sparse.net
    optimizer = GaussNewton(sparse.net, held_out=dense.closure)
    with pytest.warns(AliasingWarning, match="held-out") as seen:
        steps(optimizer, sparse.closure, 60)
    assert len(seen) == 1
    fine, other = Poisson1d(0), Poisson1d(0)
    other.x = torch.linspace(0.01, 0.99, 41, dtype=torch.float64)[:, None].requires_grad_()
    other.net = fine.net
    optimizer = GaussNewton(fine.net, held_out=other.closure)
    found = []
    for _ in range(60):
        optimizer.step(fine.closure)
        found.append(optimizer.statistics.held_out)
    measured = [loss for loss in found if loss is not None]
    assert [i for i, loss in enumerate(found) if loss is not None] == [0, 10, 20, 30, 40, 50]
    assert measured[-1] < 1e-4 * measured[0]


@pytest.mark.parametrize(
    ("held_out", "warned"),
    [
        ([1.0, 0.5, 0.2, 0.2, 0.2], True),  # stays while the fit falls
        ([1.0, 0.5, 0.2, 0.02, 0.002, 9e-5, 9e-5], False),  # falls behind the fit, and gets small
        ([1.0, 0.5, 0.1, 0.1, 0.01, 0.01, 9e-5], False),  # waits once, twice in a row never
        ([1.0, 2.0, 4.0, 8.0], True),  # grows
    ],
)
def test_aliasing_is_a_held_out_loss_that_has_stopped_falling(held_out, warned):
    watch = Watch()
    fit = [10.0 ** (-3 * k) for k in range(len(held_out))]
    messages = [watch.message(a, b) for a, b in zip(fit, held_out, strict=True)]
    assert any(messages) is warned


def test_single_precision_says_that_it_is_the_limit():
    problem = Poisson1d(0, torch.float32)
    optimizer = GaussNewton(problem.net)
    with pytest.warns(UserWarning, match="float32"):
        steps(optimizer, problem.closure, 200)
    assert optimizer.statistics.status == "converged"
    assert "double" in optimizer.statistics.reason


def test_sentences_for_wrong_closures():
    net = seeded(lambda: mlp(3, 4, 1))
    optimizer = GaussNewton(net)
    before = flat(net)
    noise = torch.Generator().manual_seed(0)
    cases = [
        (None, InvalidInputError, "needs a closure"),
        (lambda: None, DtypeError, "must return residuals"),
        (lambda: (net(X), 1), DtypeError, "name the likelihood"),
        (lambda: net(X).square().mean(), InvalidInputError, "not their mean"),
        (lambda: net(X).detach(), InvalidInputError, "no graph"),
        (lambda: net(X) / 0, NonFiniteError, "20 of the 20"),
        (lambda: {"a": (net(X), -1.0)}, InvalidInputError, "weight of block 'a'"),
        (lambda: {"a": (net(X), 1.0, 2.0)}, InvalidInputError, "pair"),
        (lambda: {1: net(X)}, DtypeError, "strings"),
        (lambda: net(X).float(), DtypeError, "float64"),
        (
            lambda: net(torch.randn(20, 3, dtype=torch.float64, generator=noise)),
            InvalidInputError,
            "different values",
        ),
    ]

    def check(case: tuple[object, type[Exception], str]) -> None:
        closure, kind, words = case
        with pytest.raises(kind, match=words):
            optimizer.step(closure)

    for_each(cases, check)
    assert torch.equal(flat(net), before)
    with pytest.raises(DtypeError, match="pair"):
        GaussNewton(net, ng.Gaussian()).step(lambda: net(X))
    with pytest.raises(DtypeError, match="likelihood must be a Likelihood"):
        GaussNewton(net, torch.nn.MSELoss())
    with pytest.raises(UnsupportedError, match="coefficients="):
        optimizer.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})
    with pytest.raises(InvalidInputError, match="leaf"):
        GaussNewton(net, coefficients=[torch.zeros(1, dtype=torch.float64)])


def test_a_closure_that_fails_midway_leaves_the_weights_alone():
    problem = Poisson1d(0)
    optimizer, calls = GaussNewton(problem.net), []

    def closure() -> dict[str, object]:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return problem.closure()

    before = flat(problem.net)
    with pytest.raises(KeyboardInterrupt):
        steps(optimizer, closure, 3)
    assert torch.equal(flat(problem.net), before)


def test_states_that_do_not_fit_are_refused_whole():
    problem = Poisson1d(0)
    optimizer = GaussNewton(problem.net)
    optimizer.step(problem.closure)
    good = optimizer.state_dict()
    for part, value in (("columns", torch.zeros(2)), ("steps", -1), ("rule", {"damping": 1.0})):
        bad = copy.deepcopy(good)
        bad["natural"][part] = value
        with pytest.raises(InvalidInputError, match="does not fit"):
            optimizer.load_state_dict(bad)
    optimizer.load_state_dict(good)


def test_layers_that_are_not_recorded_are_named():
    class Coordinates(Module):
        def __init__(self) -> None:
            super().__init__()
            self.frequencies = torch.nn.Parameter(torch.ones(3, 40, dtype=torch.float64))
            self.last = Linear(40, 1).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.sin(x @ self.frequencies))

    net, x = Coordinates(), X.repeat(4, 1)
    optimizer = GaussNewton(net)
    with pytest.warns(SlowRowsWarning, match="frequencies"):
        optimizer.step(lambda: net(x)[:, 0] - 1)
    assert optimizer.statistics.notes
    optimizer.step(lambda: net(x)[:, 0] - 1)  # said once: warnings are errors here
    both = lambda: {"pairs": net(x.repeat(2, 1)).reshape(2, -1).diff(dim=0)[0]}  # noqa: E731
    with pytest.warns(SlowRowsWarning, match="block 'pairs'"):
        optimizer.step(both)


def test_spirals_are_separated_by_exact_steps_on_logits():
    t = torch.linspace(0.3, 2.0, 40, dtype=torch.float64) * math.pi
    arm = torch.stack([t * torch.cos(t), t * torch.sin(t)], 1) / 4
    x, y = torch.cat([arm, -arm]), torch.cat([torch.ones(40), -torch.ones(40)]).double()
    net = seeded(lambda: Sequential(Linear(2, 20), Tanh(), Linear(20, 1)), seed=2)
    optimizer = GaussNewton(net, ng.Bernoulli())
    assert steps(optimizer, lambda: (net(x)[:, 0], y), 80) < 1e-2
