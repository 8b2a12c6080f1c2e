"""Methods of parametrizations explain invalid arguments, and checks of valid ones are cheap."""

import pytest
import torch

import natgrad as ng
from natgrad.errors import DtypeError, ModuleError, NatgradError, NonFiniteError, ShapeError
from natgrad.parametrizations import Design, Parametrization

X = torch.ones(4, 2, dtype=torch.float64)
W = torch.ones(2, 2, dtype=torch.float64)


class Square(Parametrization[torch.Tensor]):
    """A user's model: f(x) = Σ wᵢ² xᵢ."""

    def check(self, params):
        if not isinstance(params, torch.Tensor) or params.ndim != 1:
            raise ShapeError("Square takes a vector of parameters.")

    def check_inputs(self, params, x):
        pass

    def predict(self, params, x):
        return x @ params.square()

    def jvp(self, params, x, v):
        return x @ (2 * params * v)

    def vjp(self, params, x, u):
        return 2 * params * (x.mT @ u)

    def layers(self, params):
        return 1

    def restrict(self, v, layer):
        return v

    def design(self, params, x, layer=None):
        return Design((2 * x * params)[:, None], lambda z: z, lambda g: g)


def test_types_are_refused_before_the_call():
    with pytest.raises(DtypeError, match=r"x must be a torch.Tensor, but is 'text'"):
        ng.Diagonal(2).predict(W, "text")
    with pytest.raises(DtypeError, match="v must be a tensor, or a tuple or dict of tensors"):
        ng.Diagonal(2).push(W, 2.0)
    with pytest.raises(DtypeError, match=r"layer must be an integer of at least 0, but is 1.0"):
        ng.Diagonal(2).restrict(W, 1.0)


def test_parameters_are_explained_by_their_own_check():
    with pytest.raises(ShapeError, match="parameters must have shape"):
        ng.Diagonal(2).predict(torch.ones(2, 3, 4).double(), X)
    with pytest.raises(DtypeError, match="Network takes a non-empty dict"):
        ng.Network(torch.nn.Linear(2, 1)).predict((W,), X)


def test_inputs_are_explained_by_their_own_check():
    with pytest.raises(ShapeError, match=r"inputs must have shape \(n, 2\)"):
        ng.Diagonal(2).predict(W, torch.ones(4, 3).double())
    with pytest.raises(DtypeError, match=r"inputs have dtype torch.float32 but parameters"):
        ng.Diagonal(2).vjp(W, X.float(), torch.ones(4).double())
    with pytest.raises(ModuleError, match="cannot be run on inputs"):
        ng.Network(torch.nn.Linear(2, 1).double()).predict(
            ng.Network(torch.nn.Linear(2, 1).double()).init(), torch.ones(4, 3).double()
        )


def test_what_no_check_explains_names_the_arguments():
    with pytest.raises(ShapeError, match=r"Diagonal.pull cannot take params: .*g: a tensor of .*5"):
        ng.Diagonal(2).pull(W, torch.ones(5).double())


def test_models_of_users_are_guarded_too():
    model, w = Square(), torch.ones(2, dtype=torch.float64)
    assert torch.equal(model.predict(w, X), torch.full((4,), 2.0).double())
    with pytest.raises(ShapeError, match="Square takes a vector"):
        model.predict(W, torch.ones(4, 3).double())
    with pytest.raises(DtypeError, match=r"u must be a torch.Tensor"):
        model.vjp(w, X, None)


def test_errors_of_python_calls_stay_as_they_are():
    with pytest.raises(TypeError, match="unexpected keyword argument 'lyaer'") as caught:
        ng.Diagonal(2).design(W, X, lyaer=1)
    assert not isinstance(caught.value, NatgradError)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        ng.Diagonal(2).predict(W)


def test_guards_read_no_entries():
    """Transforms have no entries to read, and flows must see NaN to stop by themselves."""
    moved = torch.func.vmap(lambda row: ng.Diagonal(2).predict(W, row[None])[0])(X)
    assert torch.equal(moved, X @ W.prod(0))
    assert ng.Diagonal(2).predict(W * torch.nan, X).isnan().all()
    with pytest.raises(NonFiniteError):
        ng.natural(ng.Gaussian(), ng.Diagonal(2), W * torch.nan, (X, torch.ones(4).double()))


def test_lifts_take_parameters_that_require_gradients():
    network = ng.DeepLinear((2, 3, 1))
    w = tuple(f.requires_grad_() for f in network.init_gaussian(generator=torch.Generator()))
    u = torch.ones(1, 2, dtype=torch.float64)
    assert torch.allclose(network.push(w, network.lift(w, u)), u)
