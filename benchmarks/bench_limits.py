"""Seconds to each limit at the sizes of [KMH21], every answer checked by its own certificate."""

import torch
from harness import Row, interleaved, report

from natgrad import limits

F64 = torch.float64


def separable(n: int, d: int = 1000, ones: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(n, d, dtype=F64, generator=torch.Generator().manual_seed(0))
    truth = torch.zeros(d, dtype=F64)
    truth[:ones] = 1
    return x, torch.sign(x @ truth)


def row(name: str, call, bound: float, certificate: float, rounds: int = 3) -> Row:  # type: ignore[no-untyped-def]
    limit = call()
    assert limit.certificate <= certificate, (name, limit.certificate)
    (seconds,) = interleaved(call, rounds=rounds)
    detail = f"{limit.certificate_name} {limit.certificate:.1e}, {limit.solver}"
    return Row(name, seconds, "s", f"≤ {bound:g}", seconds <= bound, detail)


def margins() -> list[Row]:
    rows = []
    for n in (250, 500, 1000, 2500):
        x, y = separable(n)
        rows.append(
            row(f"max_margin p = 1, N = {n}", lambda x=x, y=y: limits.max_margin(x, y, 1), 5, 1e-9)
        )
    for n in (500, 1000, 2500):
        x, y = separable(n)
        rows.append(
            row(f"max_margin p = 2, N = {n}", lambda x=x, y=y: limits.max_margin(x, y), 5, 1e-9)
        )
    x, y = separable(500)
    rows.append(
        row(
            "max_margin p = 2/3, N = 500, four starts",
            lambda: limits.max_margin(x, y, 2 / 3),
            30,
            1e-9,
            rounds=1,
        )
    )
    return rows


def natural_flows() -> list[Row]:
    rows = []
    for n in (500, 1500, 2500):
        x, y = separable(n)
        rows.append(
            row(f"natural_flow, N = {n}", lambda x=x, y=y: limits.natural_flow(x, y), 5, 1e-9)
        )
    x, y = separable(2500)
    found = limits.separability(x, y)
    assert found.kind == "separable"
    (seconds,) = interleaved(lambda: limits.separability(x, y), rounds=3)
    detail = f"margin {found.margin:.1e}, {found.solver}"
    rows.append(Row("separability, N = 2500", seconds, "s", "≤ 5", seconds <= 5, detail))
    return rows


def completion() -> list[Row]:
    rows = []
    for n in (1000, 2000):
        source = torch.Generator().manual_seed(n)
        left, right = torch.randn(2, 100, 5, dtype=F64, generator=source)
        flat = torch.randperm(10_000, generator=source)[:n]
        positions = torch.stack([flat // 100, flat % 100], dim=1)
        truth = left @ right.mT
        values = (100 * truth / truth.norm())[positions[:, 0], positions[:, 1]]
        rows.append(
            row(
                f"nuclear_norm 100×100, N = {n}, gap 1e-6",
                lambda p=positions, v=values: limits.nuclear_norm(p, v, (100, 100)),
                1.5,
                1e-6,
            )
        )
    return rows


if __name__ == "__main__":
    report("Limits, D = 1000", [*margins(), *natural_flows(), *completion()])
