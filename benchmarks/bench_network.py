"""The exact natural direction of a network with 10⁵ parameters: memory, and time against a peer.

The peer is curvlinops: its exact Fisher (type 2) as a matrix-free operator, inverted by SciPy's
conjugate gradients from zero, which tends to the same minimum-norm direction. Both start from the
gradient's residual and stop at the same relative accuracy of the logit velocities.
"""

import resource
import subprocess
import sys
import warnings

import numpy as np
import scipy.sparse.linalg
import torch
from harness import Row, interleaved, report

import natgrad as ng

N, WIDTHS = 200, (784, 128, 1)
ACCURACY = 1e-6


def problem() -> tuple[torch.nn.Module, ng.Network, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(WIDTHS[0], WIDTHS[1]), torch.nn.Tanh(), torch.nn.Linear(*WIDTHS[1:])
    ).double()
    x = torch.randn(N, WIDTHS[0], dtype=torch.float64)
    y = torch.sign(torch.randn(N, 1, dtype=torch.float64))
    return module, ng.Network(module), x, y


def ours(network: ng.Network, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    return ng.natural(ng.Bernoulli(), network, network.init(), (x, y))


def error(network: ng.Network, x: torch.Tensor, y: torch.Tensor, v: dict[str, torch.Tensor]):  # type: ignore[no-untyped-def]
    """Return the relative error of the logit velocities, known from Theorem 4."""
    params = network.init()
    wanted = y / torch.sigmoid(y * network.predict(params, x))
    return float((network.jvp(params, x, v) - wanted).norm() / wanted.norm())


def through_curvlinops(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, rtol: float):  # type: ignore[no-untyped-def]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import curvlinops

    params = dict(module.named_parameters())
    labels = (y + 1) / 2
    loss = torch.nn.BCEWithLogitsLoss()
    operator = curvlinops.GGNLinearOperator(
        module, loss, list(params.values()), [(x, labels)], check_deterministic=False
    )
    gradient = torch.autograd.grad(loss(module(x), labels), list(params.values()))
    rhs = -torch.cat([g.reshape(-1) for g in gradient])
    solution, _ = scipy.sparse.linalg.cg(
        operator.to_scipy(dtype=np.float64), rhs.numpy(), rtol=rtol, maxiter=5000
    )
    flat, out, start = torch.from_numpy(solution), {}, 0
    for name, p in params.items():
        out[name] = flat[start : start + p.numel()].reshape(p.shape)
        start += p.numel()
    return out


def peak_bytes(action: str) -> int:
    """Return the peak resident memory of a fresh process that does the action."""
    done = subprocess.run(
        [sys.executable, __file__, action], capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[-1])


def tall() -> Row:
    """Return the gain of choosing the side of the solve by cost, with more outputs than weights."""
    torch.manual_seed(0)
    module = torch.nn.Linear(42, 3).double()
    batch = torch.randn(900, 42, dtype=torch.float64), torch.randint(0, 3, (900,))

    def direction(network: ng.Network) -> torch.Tensor:
        v = ng.natural(ng.Categorical(), network, network.init(), batch, damping=1e-2)
        return torch.cat([t.reshape(-1) for t in v.values()])

    chosen, kernel = ng.Network(module), KernelOnly(module)
    assert float((direction(chosen) - direction(kernel)).norm()) < 1e-9
    fast, slow = interleaved(lambda: direction(chosen), lambda: direction(kernel), seconds=10)
    return Row(
        "the outputs' side / the side chosen, 900 samples of 3 classes, 129 parameters",
        slow / fast,
        "×",
        "≥ 10",
        slow >= 10 * fast,
        f"kernel {1e3 * slow:.0f} ms, chosen {1e3 * fast:.0f} ms",
    )


class KernelOnly(ng.Network):
    """A network that always solves on the outputs' side."""

    def prefers_gram(self, params: dict[str, torch.Tensor], x: torch.Tensor) -> bool:
        return True


def main() -> None:
    module, network, x, y = problem()
    size = sum(p.numel() for p in module.parameters())
    rtol = 1e-4
    while error(network, x, y, through_curvlinops(module, x, y, rtol)) > ACCURACY and rtol > 1e-14:
        rtol /= 10
    peer_error = error(network, x, y, through_curvlinops(module, x, y, rtol))
    own_error = error(network, x, y, ours(network, x, y))
    assert own_error < 1e-10
    fast, slow = interleaved(
        lambda: ours(network, x, y), lambda: through_curvlinops(module, x, y, rtol), seconds=10
    )
    baseline, peak = peak_bytes("import") / 2**30, peak_bytes("natural") / 2**30
    report(
        f"Network with {size} parameters, {N} data",
        [
            Row(
                "curvlinops' Fisher with conjugate gradients / ours",
                slow / fast,
                "×",
                "≥ 1",
                slow >= fast,
                f"ours {fast:.2f} s, error {own_error:.0e}; peer {slow:.2f} s, error "
                f"{peer_error:.0e}",
            ),
            Row(
                "peak memory of a fresh process",
                peak,
                "GiB",
                "< 1",
                peak < 1,
                f"{baseline:.2f} GiB of it before the direction is asked for",
            ),
            tall(),
        ],
    )


if __name__ == "__main__":
    if sys.argv[1:] in (["import"], ["natural"]):
        _, network, x, y = problem()
        if sys.argv[1] == "natural":
            ours(network, x, y)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    else:
        main()
