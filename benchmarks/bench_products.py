"""Structured natural directions against the gradient and against the dense reference."""

import torch
from harness import Row, exponent, interleaved, report

import natgrad as ng
from natgrad import reference


def deep_linear() -> list[Row]:
    network = ng.DeepLinear((20,) * 17)
    generator = torch.Generator().manual_seed(0)
    w = network.init_orthogonal(generator=generator)
    x = torch.randn(1000, 20, dtype=torch.float64, generator=generator)
    y = torch.randn(1000, 20, dtype=torch.float64, generator=generator)
    likelihood = ng.Gaussian()

    def natural(selection: str) -> tuple[torch.Tensor, ...]:
        return ng.natural(likelihood, network, w, (x, y), selection=selection)

    wanted = torch.linalg.lstsq(x, y - network.predict(w, x)).solution.mT
    for selection in ("equal_share", "min_norm"):
        moved = network.push(w, natural(selection))
        assert torch.allclose(moved, wanted, rtol=1e-8, atol=1e-10)
    gradient, share, shortest = interleaved(
        lambda: ng.euclidean(likelihood, network, w, (x, y)),
        lambda: natural("equal_share"),
        lambda: natural("min_norm"),
    )
    name = "DeepLinear (20,)*17, batch 1000: natural / Euclidean"
    detail = f"Euclidean {1e3 * gradient:.2f} ms, natural {1e3 * share:.2f} ms"
    return [
        Row(f"{name}, equal share", share / gradient, "×", "≤ 4", share <= 4 * gradient, detail),
        Row(f"{name}, minimum norm", shortest / gradient, "×", "", None),
    ]


def completion(n: int, depth: int, hidden: int | None = None):  # type: ignore[no-untyped-def]
    generator = torch.Generator().manual_seed(depth)
    product = ng.MatrixProduct(depth)
    w = product.init_gaussian((n, n), scale=1.0, hidden=hidden, generator=generator)
    observed = max(1, n * n // 5)
    positions = torch.cartesian_prod(torch.arange(n), torch.arange(n))
    x = positions[torch.randperm(n * n, generator=generator)[:observed]]
    y = torch.randn(observed, dtype=torch.float64, generator=generator)
    return product, w, (x, y)


def against_gradient(depth: int, limit: float | None) -> Row:
    product, w, batch = completion(100, depth)
    likelihood = ng.Gaussian(reduction="sum")
    v = ng.natural(likelihood, product, w, batch)
    wanted = product.adjoint(w[0], batch[0], batch[1] - product.predict(w, batch[0]))
    assert float((product.push(w, v) - wanted).norm() / wanted.norm()) < 1e-9
    gradient, natural = interleaved(
        lambda: ng.euclidean(likelihood, product, w, batch),
        lambda: ng.natural(likelihood, product, w, batch),
    )
    ratio = natural / gradient
    return Row(
        f"MatrixProduct 100×100, L = {depth}: minimum norm / gradient",
        ratio,
        "×",
        "" if limit is None else f"≤ {limit:g}",
        None if limit is None else ratio <= limit,
        f"gradient {1e3 * gradient:.2f} ms, natural {1e3 * natural:.2f} ms",
    )


def against_dense(sizes: tuple[int, ...] = (10, 16, 24, 32)) -> list[Row]:
    """Time L = 3 with both at growing sizes; the dense Fisher has 3 n² rows."""
    likelihood = ng.Gaussian(reduction="sum")
    ours, dense = [], []
    for n in sizes:
        product, w, batch = completion(n, 3)
        everything = torch.cartesian_prod(torch.arange(n), torch.arange(n))

        def slow(p=product, w=w, batch=batch, everything=everything):  # type: ignore[no-untyped-def]
            return reference.natural(
                likelihood, p, w, batch, fisher_x=everything, factor=1.0, rtol=1e-11
            )

        def fast(p=product, w=w, batch=batch):  # type: ignore[no-untyped-def]
            return ng.natural(likelihood, p, w, batch)

        ours += interleaved(fast, seconds=0.5)
        answers: list[tuple[torch.Tensor, ...]] = []
        dense += interleaved(lambda slow=slow, kept=answers: kept.append(slow()), rounds=1)
        difference = product.push(w, answers[0]) - product.push(w, fast())
        assert float(difference.norm() / product.push(w, fast()).norm()) < 1e-6
    ratio = dense[-1] / ours[-1]
    bigger = []
    for n in (25, 50, 100):
        product, w, batch = completion(n, 3)
        bigger += interleaved(lambda p=product, w=w, b=batch: ng.natural(likelihood, p, w, b))
    return [
        Row(
            f"MatrixProduct {sizes[-1]}×{sizes[-1]}, L = 3: dense reference / minimum norm",
            ratio,
            "×",
            "≥ 100",
            ratio >= 100,
            f"dense {dense[-1]:.2f} s, ours {1e3 * ours[-1]:.1f} ms",
        ),
        Row(
            f"growth exponent of the dense reference, n = {sizes[-2]}…{sizes[-1]}",
            exponent(list(sizes[-2:]), dense[-2:]),
            "",
            "",
            None,
        ),
        Row("growth exponent of ours, n = 25…100", exponent([25, 50, 100], bigger), "", "", None),
    ]


if __name__ == "__main__":
    rows = [*deep_linear(), against_gradient(2, 25), against_gradient(3, None), *against_dense()]
    report("Structured natural directions", rows)
