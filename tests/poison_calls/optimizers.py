"""Valid calls of the optimizers."""

import torch
from torch import Tensor

import natgrad as ng
from natgrad import optim
from tests.poison import Call
from tests.poison_calls.common import TABLE, add, add_method, module, seeded, signs, x

# Optimizers ---------------------------------------------------------------------------------------


def ngd() -> ng.NGD:
    return ng.NGD(module(), ng.Gaussian(), generator=seeded())


def preconditioner() -> optim.Preconditioner:
    return optim.Preconditioner(module(), ng.Gaussian(), generator=seeded())


def _closure() -> Tensor:
    return torch.ones(())


def trained() -> ng.NGD:
    """Return an optimizer before its first step, whose closure runs the model."""
    net, likelihood = module(), ng.Gaussian()
    found = ng.NGD(net, likelihood, generator=seeded())

    def closure() -> Tensor:
        found.zero_grad()
        loss = likelihood(net(x()), signs()[:, None])
        loss.backward()
        return loss

    found.test_closure = closure  # type: ignore[attr-defined]
    return found


def _step() -> Call:
    found = trained()
    return found.step, {"closure": found.test_closure}


TABLE["natgrad.NGD.step"] = _step


def _ngd() -> Call:
    net = module()
    groups = [{"params": [net[0].bias], "lr": 0.5}]
    return ng.NGD, {"model": net, "groups": groups, **_NGD_OPTIONS(), "likelihood": ng.Gaussian()}


TABLE["natgrad.NGD"] = _ngd


_NGD_OPTIONS = lambda: (  # noqa: E731
    {
        "lr": 1.0,
        "weight_decay": 0.01,
        "momentum": 0.5,
        "step_length": optim.EqualShare(),
        "damping": optim.Adaptive(),
        "factors": optim.Factors(),
        "refresh": 3,
        "method": "kronecker",
        "solver": "auto",
        "weight_average": 1.0,
        "state_dtype": torch.bfloat16,
        "reduction": "mean",
        "strict": True,
        "generator": seeded(),
    }
)
add(
    "natgrad.NGD.published",
    ng.NGD.published,
    lambda: {
        "model": module(),
        "likelihood": ng.Gaussian(),
        "lr": 1.0,
        "damping": 0.1,
        "floor": 1e-3,
        "samples": 1,
        "refresh": 2,
    },
)
add(
    "natgrad.NGD.known_output",
    ng.NGD.known_output,
    lambda: {"model": module(), "likelihood": ng.Gaussian(), "samples": 1, "refresh": 2},
)
add_method("natgrad.NGD.add_param_group", ngd, lambda: {"param_group": {"params": []}})
add_method("natgrad.NGD.load_state_dict", ngd, lambda: {"state_dict": ngd().state_dict()})


def gauss_newton() -> ng.GaussNewton:
    """Return an optimizer, with a closure of residuals."""
    net = module()
    found = ng.GaussNewton(net)
    found.test_closure = lambda: net(x())[:, 0] - signs()  # type: ignore[attr-defined]
    return found


def _gauss_newton() -> Call:
    net = module()
    return ng.GaussNewton, {
        "model": net,
        "likelihood": ng.Gaussian(),
        "coefficients": [],
        "scaling": "more",
        "damping": 0.1,
        "acceleration": 1.5,
        "momentum": 0.5,
        "resample": lambda: None,
        "resample_every": 3,
        "held_out": lambda: (net(x()), signs()),
        "solver": "auto",
    }


def _gauss_newton_step() -> Call:
    found = gauss_newton()
    return found.step, {"closure": found.test_closure}


TABLE["natgrad.GaussNewton"] = _gauss_newton
TABLE["natgrad.GaussNewton.step"] = _gauss_newton_step
add_method(
    "natgrad.GaussNewton.add_param_group", gauss_newton, lambda: {"param_group": {"params": []}}
)
add_method(
    "natgrad.GaussNewton.load_state_dict",
    gauss_newton,
    lambda: {"state_dict": gauss_newton().state_dict()},
)
add(
    "natgrad.diagnose",
    ng.diagnose,
    lambda: {
        "model": module(),
        "likelihood": ng.Gaussian(),
        "x": x(),
        "loss": None,
        "factors": optim.Factors(),
    },
)
add(
    "natgrad.optim.Adaptive",
    optim.Adaptive,
    lambda: {
        "start": 0.03,
        "up": 1.5,
        "down": 0.5,
        "low": 0.25,
        "high": 0.75,
        "least_alpha": 0.1,
        "least_share": 1.0,
        "floor": 1e-6,
        "relative_floor": 1e-3,
        "ceiling": 1e6,
        "reject": 0.05,
        "split": "pi",
    },
)
_after = {"step": 1, "value": 0.1, "ratio": 0.5, "alpha": 1.0, "share": 1.0, "scale": 0.1}
add_method("natgrad.optim.Adaptive.after", optim.Adaptive, lambda: dict(_after))
add_method("natgrad.optim.Falling.after", optim.Falling, lambda: dict(_after))
add_method("natgrad.optim.Fixed.after", lambda: optim.Fixed(start=0.1), lambda: dict(_after))
add_method(
    "natgrad.optim.Scheduled.after",
    lambda: optim.Scheduled(schedule=lambda step: 0.1),
    lambda: dict(_after),
)
add("natgrad.optim.Loss", optim.Loss, lambda: {"function": _closure, "reduction": "sum"})
add_method("natgrad.optim.Loss.forward", lambda: optim.Loss(_closure), dict)
add("natgrad.optim.Fixed", optim.Fixed, lambda: {"start": 0.1, "split": "pi", "reject": 0.5})
add(
    "natgrad.optim.Scheduled",
    optim.Scheduled,
    lambda: {"schedule": lambda step: 0.1, "split": "pi", "reject": 0.5},
)
add(
    "natgrad.optim.Factors",
    optim.Factors,
    lambda: {
        "source": "sampled",
        "samples": 1,
        "memory": 10.0,
        "exact_output": True,
        "sharing": "expand",
        "keep": True,
        "block": 100,
        "rows": 1000,
    },
)
add("natgrad.optim.PerLayer", optim.PerLayer, lambda: {"rows": 10})
add(
    "natgrad.optim.Learned",
    optim.Learned,
    lambda: {"start": 0.03, "rate": 0.1, "fast": 0.5, "floor": 1e-9, "ceiling": 1.0},
)
add(
    "natgrad.optim.Falling",
    optim.Falling,
    lambda: {"start": 1.0, "factor": 0.5, "floor": 1e-3, "reject": 1.0},
)
add("natgrad.optim.Quadratic", optim.Quadratic, lambda: {"rows": 10})
add(
    "natgrad.optim.Preconditioner",
    optim.Preconditioner,
    lambda: {
        "model": module(),
        "likelihood": ng.Gaussian(),
        "damping": 0.1,
        "factors": optim.Factors(),
        "refresh": 3,
        "solver": "auto",
        "split": "pi",
        "reduction": "mean",
        "strict": True,
        "generator": seeded(),
    },
)
add_method("natgrad.NGD.consolidate", trained, lambda: {"to": 0})
add_method("natgrad.optim.Preconditioner.consolidate", preconditioner, lambda: {"to": 0})
add_method(
    "natgrad.optim.Preconditioner.load_state_dict",
    preconditioner,
    lambda: {"state": preconditioner().state_dict()},
)
