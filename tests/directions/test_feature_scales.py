"""The units of a feature change no velocity of the outputs, over the range of the dtype.

The witness of invariance is the same problem in units of one; the witness of shortest and of damped
solutions, which do depend on units, is arithmetic of 600 digits.
"""

import mpmath
import pytest
import torch

import natgrad as ng
from natgrad.linalg import graded_fisher_solve, graded_lstsq, lstsq
from natgrad.linalg._columns import column_exponents, times_power
from tests.cases import randn

D = 5
F64 = torch.float64


def unit_network() -> tuple[ng.Network, dict[str, torch.Tensor]]:
    layers = torch.nn.Linear(D, 40), torch.nn.Tanh(), torch.nn.Linear(40, 2)
    net = ng.Network(torch.nn.Sequential(*layers).double())
    draw = randn(5)
    return net, {k: 0.7 * draw(*p.shape) for k, p in net.init().items()}


def cases():
    """Yield name, model, parameters, and how the parameters change with the units s."""
    draw = randn(3)
    yield "direct", ng.Direct(), draw(D), lambda w, s: w / s
    yield "direct, 2 outputs", ng.Direct(), draw(D, 2), lambda w, s: w / s[:, None]
    for depth in (2, 3):
        first = lambda w, s: torch.cat([w[:1] / s, w[1:]])  # noqa: E731
        yield f"diagonal {depth}", ng.Diagonal(depth), draw(depth, D), first
    for widths in ((D, 6, 2), (D, 5, 4, 2), (D, 1, 2)):
        net = ng.DeepLinear(widths)
        w = net.init_gaussian(generator=torch.Generator().manual_seed(1))
        yield f"deep linear {widths}", net, w, lambda w, s: (w[0] / s, *w[1:])
    net, w = unit_network()
    scale_first = lambda w, s: {k: v / s if k == "0.weight" else v for k, v in w.items()}  # noqa: E731
    yield "network", net, w, scale_first


CASES = list(cases())


def cast(params, dtype):
    if isinstance(params, torch.Tensor):
        return params.to(dtype)
    if isinstance(params, tuple):
        return tuple(w.to(dtype) for w in params)
    return {k: w.to(dtype) for k, w in params.items()}


def velocity(case, n, loss, selection, over, s, dtype):
    _, model, params, rescale = case
    params, x = cast(rescale(params, s), dtype), randn(n)(n, D) * s
    outputs = model.predict(cast(params, F64), x)
    y = randn(7)(*outputs.shape)
    y = torch.sign(y) if isinstance(loss, ng.Bernoulli) else y
    x, y = x.to(dtype), y.to(dtype)
    fisher_over = None if over is None else (torch.cat([x.double() / s, randn(9)(20, D)]) * s)
    fisher_over = None if over is None else fisher_over.to(dtype)
    v = ng.natural(loss, model, params, (x, y), selection=selection, fisher_over=fisher_over)
    return model.jvp(params, x, v).double()


def units(power: float) -> list[torch.Tensor]:
    """Return one feature, two in opposite ways, and all but one in other units."""
    out = [torch.ones(D, dtype=F64) for _ in range(3)]
    out[0][0] = 10.0**power
    out[1][1], out[1][3] = 10.0**power, 10.0 ** (-power / 2)
    out[2][:4] = 10.0**power
    return out


@pytest.mark.parametrize("loss", [ng.Gaussian(), ng.Bernoulli()], ids=["gaussian", "bernoulli"])
@pytest.mark.parametrize("n", [3, pytest.param(5, marks=pytest.mark.slow), 12])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_units_change_no_velocity(case, n, loss) -> None:
    for selection in ("min_norm", "equal_share"):
        for over in (None, "sample"):
            one = torch.ones(D, dtype=F64)
            try:
                truth = velocity(case, n, loss, selection, over, one, F64)
            except ng.errors.RankDeficientError:
                continue  # this layer cannot act alone, whatever the units
            rough = velocity(case, n, loss, selection, over, one, torch.float32)
            noise = float((rough - truth).norm() / truth.norm())
            for dtype, powers, tolerance in (
                (F64, (-100, -15, -7, 7, 15, 100), 1e-7),
                # A network's shortest solution leans on nearly dependent columns, whose entries
                # carry the rounding of float32; a column dropped costs ten times as much.
                (
                    torch.float32,
                    (-30, -6, 6, 30),
                    30 * noise + (0.1 if case is CASES[-1] else 1e-3),
                ),
            ):
                for s in [s for p in powers for s in units(p)]:
                    got = velocity(case, n, loss, selection, over, s, dtype)
                    assert float((got - truth).norm() / truth.norm()) < tolerance, (dtype, s)


def exact_shortest(a, b) -> torch.Tensor:
    """Return lim (AᵀA + λ)⁻¹ Aᵀb for λ → 0, in 900 digits."""
    with mpmath.workdps(900):
        x, f = mpmath.matrix(a.tolist()), mpmath.matrix(b[:, None].tolist())
        system = x.T * x + mpmath.mpf(10) ** -600 * mpmath.eye(a.shape[1])
        return torch.tensor([float(v) for v in mpmath.lu_solve(system, x.T * f)], dtype=F64)


@pytest.mark.parametrize("seed", range(30))
def test_the_shortest_solution_is_that_of_the_units_given(seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    m, n, r = (int(torch.randint(2, 8, (1,), generator=generator)) for _ in range(3))
    left, right = (torch.randint(-3, 4, s, generator=generator).double() for s in ((m, r), (r, n)))
    powers = torch.randint(-90, 90, (n,), generator=generator).double()
    a, b = times_power(left @ right, powers), randn(seed)(m)
    exact, fit = exact_shortest(a, b), lstsq(a, b)
    assert fit.rank == int(torch.linalg.matrix_rank(left @ right))
    assert float((fit.solution - exact).norm()) <= 1e-10 * float(exact.norm())


@pytest.mark.parametrize("damping", [1e-30, 1e-8, 1.0])
@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize(("n", "d"), [(8, 4), (3, 6)])
def test_damped_velocities_in_mixed_units(n, d, over, damping) -> None:
    s = torch.tensor([1.0, 1e-15, 1e10, 1e-3, 1.0, 1e7], dtype=F64)[:d]
    x, y, other = randn(1)(n, d) * s, torch.sign(randn(2)(n)), randn(3)(9, d) * s
    fisher_over = other if over else None
    v = ng.natural(
        ng.Bernoulli(),
        ng.Direct(),
        torch.zeros(d, dtype=F64),
        (x, y),
        damping=damping,
        fisher_over=fisher_over,
    )
    with mpmath.workdps(600):
        rows, seen = (mpmath.matrix(t.tolist()) for t in (x, other if over else x))
        fisher = seen.T * seen * (mpmath.mpf(0.25) / seen.rows) + damping * mpmath.eye(d)
        descent = rows.T * mpmath.matrix((0.5 * y)[:, None].tolist()) / n
        moved = rows * (mpmath.matrix(v[:, None].tolist()) - mpmath.lu_solve(fisher, descent))
        wanted = rows * mpmath.lu_solve(fisher, descent)
        assert mpmath.norm(moved) <= 1e-12 * mpmath.norm(wanted)


@pytest.mark.parametrize("power", [-100, -15, 15, 100])
@pytest.mark.parametrize("rank", [2, 4])
def test_graded_rows_in_mixed_units(power, rank) -> None:
    """Both at once: weights over 50 orders of magnitude, columns over 200."""
    a = randn(1)(9, rank) @ randn(2)(rank, 4)
    b, ell = randn(3)(9), -torch.linspace(0, 120, 9, dtype=F64)
    s = torch.tensor([1.0, 10.0**power, 1.0, 10.0 ** (-power / 2)], dtype=F64)
    plain, scaled = graded_lstsq(a, b, ell), graded_lstsq(a * s, b, ell)
    assert scaled.rank == plain.rank == rank
    seen, truth = (a * s) @ scaled.solution, a @ plain.solution
    assert torch.allclose(seen[:rank], truth[:rank], rtol=1e-9)
    same = graded_fisher_solve(a * s, ell, a * s, ell, b).solution
    assert torch.allclose(((a * s) @ same)[:rank], truth[:rank], rtol=1e-7)


def test_columns_of_one_size_are_left_alone() -> None:
    assert column_exponents(randn(1)(40, 20)) is None
    assert column_exponents(torch.zeros(3, 2)) is None
    assert column_exponents(torch.zeros(0, 2)) is None


def test_powers_of_two_are_exact() -> None:
    x = randn(1)(5)
    for e in range(-1000, 1000, 7):
        assert torch.equal(times_power(times_power(x, e), -e), x)
    assert float(times_power(torch.tensor(3.0, dtype=F64), -1074)) == 3 * 2.0**-1074
