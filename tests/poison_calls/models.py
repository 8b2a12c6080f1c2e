"""Valid calls of likelihoods, parametrizations, directions and kernels."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import natgrad as ng
from natgrad import directions, reference
from natgrad.likelihoods import Root, Whitened
from tests.poison_calls.common import (
    add,
    add_method,
    batch,
    module,
    positions,
    real,
    seeded,
    signs,
    x,
)

# Likelihoods ------------------------------------------------------------------------------------

LIKELIHOODS: dict[str, tuple[Callable[[], Any], Callable[[], Tensor], Callable[[], Tensor]]] = {
    "Bernoulli": (ng.Bernoulli, lambda: real(4), signs),
    "Categorical": (ng.Categorical, lambda: real(4, 3), lambda: torch.tensor([0, 1, 2, 0])),
    "Gaussian": (lambda: ng.Gaussian(torch.eye(2).double()), lambda: real(4, 2), x),
    "likelihoods.Huber": (ng.likelihoods.Huber, lambda: real(4, 1), lambda: real(4, 1)),
    "likelihoods.Poisson": (
        ng.likelihoods.Poisson,
        lambda: real(4, 1),
        lambda: torch.tensor([[0.0], [2.0], [1.0], [0.0]]).double(),
    ),
}
add("natgrad.Bernoulli", ng.Bernoulli, lambda: {"reduction": "sum", "zero_one": True})
add("natgrad.likelihoods.Huber", ng.likelihoods.Huber, lambda: {"delta": 1.0, "reduction": "sum"})
add("natgrad.likelihoods.Poisson", ng.likelihoods.Poisson, lambda: {"reduction": "sum"})
add("natgrad.Categorical", ng.Categorical, lambda: {"reduction": "sum"})
add(
    "natgrad.Gaussian",
    ng.Gaussian,
    lambda: {"covariance": torch.eye(2).double(), "reduction": "sum"},
)


def _likelihood(name: str, make: Any, outputs: Any, labels: Any) -> None:
    enter = lambda method, arguments: add_method(f"natgrad.{name}.{method}", make, arguments)  # noqa: E731
    for method in ("__call__", "gradient", "loss", "losses", "prepare", "whitened"):
        enter(method, lambda: {"output": outputs(), "y": labels()})
    for method in ("fisher", "mean_fisher", "root"):
        enter(method, lambda: {"output": outputs()})
    for method in ("sample", "sampled_errors"):
        enter(method, lambda: {"output": outputs(), "generator": seeded()})
    enter("fisher_product", lambda: {"output": outputs(), "u": outputs()})
    enter("observe", lambda: {"listener": lambda *_: None})
    enter("scale", lambda: {"n": 3})
    enter("support", lambda: {"output": outputs().reshape(4, -1)[0]})
    enter("gaussian_moments", lambda: {"r": 1.0})
    enter("precision_root", lambda: {"like": x(), "k": 2})
    enter("visible", lambda: {"like": outputs().T.contiguous() if outputs().ndim > 1 else x()[:1]})


for _name, _parts in LIKELIHOODS.items():
    _likelihood(_name, *_parts)
for _name, _root in (
    ("Root", lambda: Root(real(1, 2, 2), real(4, 2))),
    ("Whitened", lambda: Whitened(real(1, 2, 2), real(4, 2), real(4, 2))),
):
    add_method(f"natgrad.likelihoods.{_name}.apply", _root, lambda: {"outputs": x()})
    add_method(f"natgrad.likelihoods.{_name}.transpose", _root, lambda: {"rows": x()})


# Parametrizations -------------------------------------------------------------------------------

MODELS: dict[str, tuple[Callable[[], Any], Callable[[], Any], Callable[[], Tensor], int]] = {
    "Direct": (ng.Direct, lambda: real(2, seed=1), x, 1),
    "Diagonal": (lambda: ng.Diagonal(2), lambda: real(2, 2, seed=1), x, 2),
    "DeepLinear": (
        lambda: ng.DeepLinear((2, 3, 1)),
        lambda: (real(3, 2, seed=1), real(1, 3, seed=2)),
        x,
        2,
    ),
    "MatrixProduct": (
        lambda: ng.MatrixProduct(2),
        lambda: (real(2, 2, seed=1), real(2, 2, seed=2)),
        positions,
        2,
    ),
    "Network": (lambda: ng.Network(module()), lambda: ng.Network(module()).init(), x, 2),
}


def _parametrization(name: str, make: Any, params: Any, inputs: Any, layers: int) -> None:
    enter = lambda method, arguments: add_method(f"natgrad.{name}.{method}", make, arguments)  # noqa: E731
    outputs = lambda: torch.ones_like(make().predict(params(), inputs()))  # noqa: E731
    at = lambda: {"params": params(), "x": inputs()}  # noqa: E731
    for method in ("check_inputs", "predict", "prefers_gram"):
        enter(method, at)
    enter("check", lambda: {"params": params()})
    enter("layers", lambda: {"params": params()})
    enter("fisher_default", lambda: {"x": inputs()})
    enter("jvp", lambda: {**at(), "v": params()})
    enter("vjp", lambda: {**at(), "u": outputs()})
    enter("design", lambda: {**at(), "layer": layers - 1})
    enter("gram", lambda: {**at(), "other": inputs()[:2], "layer": layers - 1})
    enter("linearized", lambda: {**at(), "layer": layers - 1})
    enter("restrict", lambda: {"v": params(), "layer": layers - 1})
    enter("reads_entries", lambda: {"x": inputs()})
    enter("coefficients", lambda: {"params": params()})
    if name == "Network":
        return
    h = lambda: make().hypothesis(params())  # noqa: E731
    shares = [1 / layers] * layers
    enter("hypothesis", lambda: {"params": params()})
    enter("push", lambda: {"params": params(), "v": params()})
    enter("pull", lambda: {"params": params(), "g": h()})
    enter("lift", lambda: {"params": params(), "u": h(), "shares": shares})
    lifted = lambda: {"params": params(), "u": h(), "shares": shares, "damping": 0.1}  # noqa: E731
    enter("natural_lift", lifted)
    enter("surjective", lambda: {"params": params()})
    enter("reachable", lambda: {"params": params(), "u": h()})
    enter("evaluate", lambda: {"h": h(), "x": inputs()})
    enter("adjoint", lambda: {"h": h(), "x": inputs(), "u": outputs()})


for _name, _model in MODELS.items():
    _parametrization(_name, *_model)

_DIAGONAL, _DEEP, _PRODUCT = (MODELS[n] for n in ("Diagonal", "DeepLinear", "MatrixProduct"))
add("natgrad.Diagonal", ng.Diagonal, lambda: {"depth": 2})
add("natgrad.DeepLinear", ng.DeepLinear, lambda: {"widths": (2, 3, 1)})
add("natgrad.MatrixProduct", ng.MatrixProduct, lambda: {"depth": 2})
add("natgrad.Network", ng.Network, lambda: {"module": module(), "memory": 2**20})

_RANDOM = {"scale": 0.5, "dtype": torch.float64}


def _random(**more: Any) -> dict[str, Any]:
    return {**_RANDOM, "generator": seeded(), **more}


for _method in ("init_free", "init_tied"):
    add_method(f"natgrad.Diagonal.{_method}", _DIAGONAL[0], lambda: {"dim": 2, **_RANDOM})
add_method("natgrad.Diagonal.init_gaussian", _DIAGONAL[0], lambda: _random(dim=2))
for _method in ("init_gaussian", "init_orthogonal"):
    add_method(f"natgrad.DeepLinear.{_method}", _DEEP[0], _random)
    add_method(
        f"natgrad.MatrixProduct.{_method}", _PRODUCT[0], lambda: _random(shape=(2, 3), hidden=2)
    )
add_method(
    "natgrad.MatrixProduct.init_collapsed",
    _PRODUCT[0],
    lambda: _random(shape=(2, 2), from_depth=4),
)
for _name, _model in (("Diagonal", _DIAGONAL), ("DeepLinear", _DEEP)):
    add_method(
        f"natgrad.{_name}.partial_products",
        _model[0],
        partial(lambda p: {"params": p()}, _model[1]),
    )
add_method(
    "natgrad.DeepLinear.problem",
    _DEEP[0],
    lambda: {
        "params": _DEEP[1](),
        "u": real(1, 2),
        "basis": torch.eye(2).double(),
        "contrast": torch.eye(1).double(),
        "left_root": torch.eye(1).double(),
        "right_root": torch.eye(2).double(),
        "damping": 0.1,
    },
)
add_method(
    "natgrad.DeepLinear.solve",
    _DEEP[0],
    lambda: {"problem": _DEEP[0]().problem(_DEEP[1](), real(1, 2)), "shares": (0.5, 0.5)},
)
_lift = lambda: {"params": _PRODUCT[1](), "u": real(2, 2), "shares": (0.5, 0.5), "damping": 0.1}  # noqa: E731
add_method("natgrad.MatrixProduct.lift", _PRODUCT[0], _lift)


# Directions, Fisher, kernels, reference -----------------------------------------------------------


def problem() -> dict[str, Any]:
    return {
        "likelihood": ng.Bernoulli(),
        "parametrization": ng.Diagonal(2),
        "params": real(2, 2, seed=1),
        "batch": batch(),
    }


def referred() -> dict[str, Any]:
    return {"likelihood": ng.Bernoulli(), "model": ng.Direct(), "params": real(2, seed=1)}


def fisher_of() -> ng.Fisher[Any]:
    return ng.Fisher(ng.Gaussian(), _DEEP[0](), _DEEP[1](), x())


add("natgrad.euclidean", ng.euclidean, problem)
add(
    "natgrad.natural",
    ng.natural,
    lambda: {
        **problem(),
        "selection": "min_norm",
        "fisher_over": x(),
        "damping": 0.1,
        "metric": "euclidean",
    },
)
add(
    "natgrad.directions.Wasserstein",
    directions.Wasserstein,
    lambda: {"ground": 1 - torch.eye(2).double(), "mean": "arithmetic"},
)
add(
    "natgrad.directions.kernel_wasserstein",
    directions.kernel_wasserstein,
    lambda: {
        "samples": x(),
        "jacobians": real(4, 2, 3),
        "points": real(3, 2),
        "bandwidth": 1.0,
        "ridge": 1e-3,
    },
)
add("natgrad.LayerShares", ng.LayerShares, lambda: {"weights": (0.5, 0.5)})
add("natgrad.GaussianInputs", ng.GaussianInputs, lambda: {"covariance": torch.eye(2).double()})
add_method("natgrad.GaussianInputs.moments", ng.GaussianInputs, lambda: {"r": 1.0})
add_method("natgrad.GaussianInputs.root", ng.GaussianInputs, lambda: {"like": x(), "d": 2})
add_method(
    "natgrad.GaussianInputs.representatives",
    ng.GaussianInputs,
    lambda: {"likelihood": ng.Bernoulli(), "h": real(2, 1)},
)
add_method(
    "natgrad.GaussianInputs.solve_identity",
    ng.GaussianInputs,
    lambda: {"likelihood": ng.Bernoulli(), "beta": real(2), "d": real(2, seed=1)},
)
add(
    "natgrad.Fisher",
    ng.Fisher,
    lambda: {
        "likelihood": ng.Gaussian(),
        "parametrization": _DEEP[0](),
        "params": _DEEP[1](),
        "x": x(),
    },
)
add_method("natgrad.Fisher.block", fisher_of, lambda: {"i": 1, "j": 2})
add_method("natgrad.Fisher.inverse_block", fisher_of, lambda: {"i": 1, "j": 2})
for _method in ("matvec", "inverse_matvec"):
    add_method(f"natgrad.Fisher.{_method}", fisher_of, lambda: {"v": _DEEP[1]()})


def _kernel() -> dict[str, Any]:
    return {
        "parametrization": ng.Diagonal(2),
        "params": real(2, 2),
        "x": x(),
        "other": x()[:2],
    }


add("natgrad.ntk", ng.ntk, _kernel)
add(
    "natgrad.natural_ntk",
    ng.natural_ntk,
    lambda: {"likelihood": ng.Bernoulli(), **_kernel(), "fisher_over": x()},
)
add("natgrad.reference.flatten", reference.flatten, lambda: {"params": (real(2), real(1, 2))})
add(
    "natgrad.reference.unflatten",
    reference.unflatten,
    lambda: {"vector": real(4), "like": (real(2), real(1, 2))},
)
add(
    "natgrad.reference.jacobian",
    reference.jacobian,
    lambda: {"model": ng.Direct(), "params": real(2), "x": x()},
)
add("natgrad.reference.gradient", reference.gradient, lambda: {**referred(), "batch": batch()})
add("natgrad.reference.fisher", reference.fisher, lambda: {**referred(), "x": x(), "factor": 0.5})
add(
    "natgrad.reference.natural",
    reference.natural,
    lambda: {
        **referred(),
        "batch": batch(),
        "fisher_x": x(),
        "factor": 0.5,
        "damping": 0.1,
        "rtol": 1e-12,
    },
)
