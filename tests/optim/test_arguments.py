"""Every argument of every public callable is checked, and a first guess gets help."""

import inspect
import math
import warnings

import numpy as np
import pytest
import torch
from torch.nn import Linear

from natgrad import Categorical, Gaussian
from natgrad.errors import DtypeError, InvalidInputError, NatgradError
from natgrad.optim import (
    NGD,
    Adaptive,
    EqualShare,
    Factors,
    Falling,
    Fixed,
    Learned,
    PerLayer,
    Preconditioner,
    Quadratic,
    Scheduled,
    diagnose,
)
from tests.optim.nets import backward

X, Y = torch.randn(5, 2), torch.randn(5, 1)

# A valid call of each, whose arguments are replaced one at a time.
CALLS = {
    "NGD": (NGD, lambda: {"model": Linear(2, 1), "likelihood": Gaussian()}),
    "published": (NGD.published, lambda: {"model": Linear(2, 1), "likelihood": Gaussian()}),
    "Preconditioner": (Preconditioner, lambda: {"model": Linear(2, 1), "likelihood": Gaussian()}),
    "diagnose": (
        diagnose,
        lambda: {"model": Linear(2, 1), "likelihood": Gaussian(), "x": X},
    ),
    "Adaptive": (Adaptive, dict),
    "Fixed": (Fixed, lambda: {"start": 0.1}),
    "Scheduled": (Scheduled, lambda: {"schedule": lambda k: 0.1}),
    "Factors": (Factors, dict),
    "Quadratic": (Quadratic, dict),
    "Learned": (Learned, dict),
    "Falling": (Falling, dict),
    "PerLayer": (PerLayer, dict),
    "Adaptive.after": (
        Adaptive().after,
        lambda: {"step": 1, "value": 0.1, "ratio": 0.5, "alpha": 0.5, "share": 1.0},
    ),
    "Fixed.after": (Fixed(start=0.1).after, lambda: {"step": 1, "value": 0.1}),
    "Scheduled.after": (
        Scheduled(schedule=lambda k: 0.1 / (k + 1)).after,
        lambda: {"step": 1, "value": 0.1},
    ),
}

POISON = [
    None,
    object(),
    "text",
    math.nan,
    math.inf,
    -math.inf,
    -1,
    0,
    True,
    [],
    {},
    1j,
    10**400,
    -(10**400),
    float,
    np.zeros(2),
    np.float32(math.nan),
    b"bytes",
    torch.zeros(3, 7),
    torch.zeros(2, 2).to_sparse(),
    torch.zeros(2, device="meta"),
    torch.zeros(2, dtype=torch.complex64),
    torch.tensor(math.nan),
]


def exotic():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)
        return [torch.quantize_per_tensor(torch.zeros(2), 0.1, 0, torch.qint8), nested]


def arguments(name):
    call, _ = CALLS[name]
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [p.name for p in inspect.signature(call).parameters.values() if p.kind not in kinds]


@pytest.mark.parametrize(
    ("name", "argument"), [(name, a) for name in CALLS for a in arguments(name)]
)
def test_a_poisoned_argument_gets_a_sentence_or_works(name, argument):
    """What is accepted takes a step without NaN; all else is one typed sentence."""
    call, valid = CALLS[name]
    for poison in POISON + exotic():
        try:
            made = call(**(valid() | {argument: poison}))
        except NatgradError:
            continue
        if isinstance(made, NGD | Preconditioner):
            takes_a_step(made)
        elif isinstance(made, float):
            assert not math.isnan(made), poison


def takes_a_step(made):
    model = made._core.model
    loss = backward(model, made._core.likelihood, X, Y)
    if made._core.custom:
        return
    made.step() if isinstance(made, NGD) else made()
    assert math.isfinite(loss)
    for p in model.parameters():
        assert bool(torch.isfinite(p).all())
        assert bool(torch.isfinite(p.grad).all())


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda m: NGD(m.parameters(), lr=1e-3), "Pass the model itself and not its parameters"),
        (lambda m: NGD.published(m.parameters()), "Pass the model itself and not its parameters"),
        (lambda m: NGD(m), "must be a criterion"),
        (lambda m: NGD(m, torch.nn.functional.cross_entropy), r"natgrad\.optim\.Loss"),
        (lambda m: NGD(m, Categorical), r"Did you mean Categorical\(\)\?"),
        (lambda m: NGD(Linear, Gaussian()), r"Make one: Linear"),
        (lambda m: NGD(m, Gaussian(), lrr=0.1), "no option 'lrr'. Did you mean 'lr'?"),
        (lambda m: NGD(m, Gaussian(), 0.1), "too many positional .* by name lr="),
        (lambda m: NGD.published(m, Gaussian(), sample=3), "Did you mean 'samples'?"),
        (lambda m: Preconditioner(m, Gaussian(), dampin=1.0), "Did you mean 'damping'?"),
        (lambda m: NGD(m, Gaussian(), step_length=EqualShare), r"Did you mean EqualShare\(\)\?"),
        (lambda m: NGD(m, Gaussian(), step_length="equal_share"), r"mean EqualShare\(\)\?"),
        (lambda m: NGD(m, Gaussian(), step_length="per-layer"), r"mean PerLayer\(\)\?"),
        (lambda m: NGD(m, Gaussian(), step_length=0.01), "lr is the factor on the length"),
        (lambda m: NGD(m, Gaussian(), damping=Adaptive), r"Did you mean Adaptive\(\)\?"),
        (lambda m: NGD(m, Gaussian(), damping="fixed"), r"Did you mean Fixed\(…\)\?"),
        (lambda m: NGD(m, Gaussian(), factors="exact"), r"Try Factors\(source='exact'\)"),
        (lambda m: NGD(m, Gaussian(), method="kroneker"), "Did you mean 'kronecker'?"),
        (lambda m: NGD(m, Gaussian(), groups=[{"params": m.bias, "l": 1}]), "Did you mean 'lr'?"),
        (lambda m: NGD(m, Gaussian(), groups={"params": m.bias}), "list of mappings"),
        (lambda m: NGD(m, Gaussian(), groups=[{"lr": 1.0}]), "mapping with 'params'"),
        (lambda m: NGD(m, Gaussian(), groups=[{"params": [3]}]), "parameters of the model"),
        (lambda m: Factors(sources="exact"), "Did you mean 'source'?"),
        (lambda m: Fixed(), "missing a required argument: 'start'"),
        (lambda m: EqualShare(2), "takes no arguments"),
        (lambda m: NGD(torch.nn.LazyLinear(2), Gaussian()), "Run the model once"),
        (lambda m: NGD.published(m, Gaussian(), samples=2, factors=Factors()), "both given"),
    ],
)
def test_first_guesses_get_help(build, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        build(Linear(2, 1))


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.5, -1, 0, True, "6"])
def test_weight_average_must_be_positive(value):
    with pytest.raises(InvalidInputError, match="weight_average must be a number above 0"):
        NGD(Linear(2, 1), Gaussian(), weight_average=value)


def test_numbers_of_numpy_are_numbers():
    options = {"lr": np.float32(0.5), "momentum": np.float64(0), "refresh": np.int64(2)}
    rule = Adaptive(start=np.float32(0.25), up=2)
    optimizer = NGD(Linear(2, 1), Gaussian(), damping=rule, **options)
    assert optimizer.param_groups[0]["lr"] == 0.5
    found = (rule.start, rule.up, optimizer.refresh_every)
    assert [type(x) for x in found] == [float, float, int]
    takes_a_step(optimizer)
    assert type(optimizer.state_dict()["natural"]["damping"]) is float


@pytest.mark.parametrize("closure", [3, "text", [], {}])
def test_a_closure_is_a_function(closure):
    optimizer = NGD(Linear(2, 1), Gaussian())
    with pytest.raises(DtypeError, match="closure must be a function"):
        optimizer.step(closure)


@pytest.mark.filterwarnings("ignore::natgrad.optim.AdaptationWarning")
@pytest.mark.parametrize("value", ["text", None, [], torch.zeros(2), 1j, True])
def test_a_closure_returns_the_loss(value):
    model = Linear(2, 1)
    optimizer = NGD(model, Gaussian(), reduction="mean")

    def closure():
        optimizer.zero_grad()
        ((model(X) - Y) ** 2).mean().backward()
        return value

    if value is None:  # the damping then stays
        optimizer.step(closure)
        return
    before = model.weight.detach().clone()
    with pytest.raises(DtypeError, match="closure must return the loss"):
        optimizer.step(closure)
    assert torch.equal(before, model.weight)


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (torch.zeros(3, 5), "cannot be run on x"),
        (torch.zeros(0, 2), "batch of inputs"),
        (torch.full((3, 2), math.nan), "x must be finite"),
        ([[1.0, 2.0]], "must be a torch.Tensor"),
        (torch.zeros(3, 2).to_sparse(), "to_dense"),
    ],
)
def test_diagnose_says_what_is_wrong_with_inputs(x, sentence):
    model = Linear(2, 1)
    model.weight.grad = torch.ones(1, 2)
    with pytest.raises(InvalidInputError, match=sentence):
        diagnose(model, Gaussian(), x)
    assert torch.equal(model.weight.grad, torch.ones(1, 2))


def test_diagnose_needs_training_mode_and_one_output():
    with pytest.raises(InvalidInputError, match=r"model\.train\(\)"):
        diagnose(Linear(2, 1).eval(), Gaussian(), X)

    class Two(Linear):
        def forward(self, x):
            return super().forward(x), x

    with pytest.raises(InvalidInputError, match="output must be a tensor"):
        diagnose(Two(2, 1), Gaussian(), X)
    with torch.no_grad():
        assert diagnose(Linear(2, 1), Gaussian(), X).parameters == 3
