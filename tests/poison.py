"""Poison every argument of every public callable, one at a time, and sort what comes back.

A call may be refused with an error of `natgrad.errors` in whole sentences, or answer with finite
numbers. Everything else is counted: other exceptions, NaN or an infinity where the unpoisoned call
has none, calls that do not come back, and refusals of harmless tensors.
"""

import dataclasses
import inspect
import math
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from decimal import Decimal
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from natgrad.errors import NatgradError

MODULES = (
    "natgrad",
    "natgrad.limits",
    "natgrad.diagnostics",
    "natgrad.data.completion",
    "natgrad.data._files",
    "natgrad.data.mnist",
    "natgrad.data.separable",
    "natgrad.data.tables",
    "natgrad.data.teachers",
    "natgrad.data.triples",
    "natgrad.reference",
    "natgrad.stopping",
    "natgrad.flows",
    "natgrad.flows.closed_forms",
    "natgrad.likelihoods",
    "natgrad.parametrizations",
    "natgrad.directions",
    "natgrad.optim",
    "natgrad.linalg",
    "natgrad.linalg.norms",
)

SECONDS = 5.0
"""After which a call counts as one that does not come back."""

LONGEST_MESSAGE = 1200

Call = tuple[Callable[..., Any], dict[str, Any]]
"""A callable and valid arguments by name; made afresh each time, for some change their arguments.

The name `*` holds positional arguments of a callable that takes any number of them.
"""


# ------------------------------------------------------------------------------------------------
# What is public
# ------------------------------------------------------------------------------------------------


def public_callables() -> dict[str, Any]:
    """Return functions, constructors and methods by name, each once.

    Left out are those that take nothing from a caller: errors, abstract classes and protocols
    (their subclasses are here), type aliases, and names of other libraries.
    """
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for module_name in MODULES:
        module = import_module(module_name)
        names = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module_name
        ]
        for name in names:
            value = getattr(module, name)
            if id(value) in seen or not str(getattr(value, "__module__", "")).startswith("natgrad"):
                continue
            seen.add(id(value))
            if inspect.isclass(value):
                found |= dict(_of_class(f"{module_name}.{name}", value))
            elif callable(value):
                found[f"{module_name}.{name}"] = value
    return {name: value for name, value in found.items() if _takes_arguments(value)}


def _of_class(name: str, kind: type) -> Iterator[tuple[str, Any]]:
    if issubclass(kind, (Exception, Warning)) or inspect.isabstract(kind) or _is_other(kind):
        return
    yield name, kind
    for attribute, value in inspect.getmembers(kind):
        public = not attribute.startswith("_") or attribute == "__call__"
        ours = str(getattr(value, "__module__", "")).startswith("natgrad")
        if public and ours and callable(value) and not inspect.isclass(value):
            yield f"{name}.{attribute}", value


def _is_other(kind: type) -> bool:
    """Return whether a class is an enumeration or a protocol."""
    return "Enum" in {c.__name__ for c in kind.__mro__} or getattr(kind, "_is_protocol", False)


def _takes_arguments(value: Any) -> bool:
    names = list(inspect.signature(value).parameters)
    return bool([name for name in names if name != "self"])


# ------------------------------------------------------------------------------------------------
# Poisons
# ------------------------------------------------------------------------------------------------


def python_poisons(valid: Any) -> dict[str, Any]:
    """Return values of Python's and NumPy's types by name, to put in place of a valid one."""
    kind = type(valid)
    return {
        "None": None,
        "object": object(),
        "text": "text",
        "text of a number": "1",
        "bytes": b"",
        "nan": math.nan,
        "inf": math.inf,
        "-inf": -math.inf,
        "-1": -1,
        "0": 0,
        "0.5": 0.5,
        "True": True,
        "huge integer": 10**400,
        "complex": 1j,
        "Decimal": Decimal(1),
        "list": [],
        "dict": {},
        "tuple": (),
        "set": {1},
        "list of None": [None, None],
        "list of text": ["a", "b"],
        "function": lambda *_, **__: None,
        "class": kind if kind.__module__ != "builtins" else int,
        "array of objects": np.array([object(), None], dtype=object),
        "structured array": np.zeros(2, dtype=[("a", "f8"), ("b", "i4")]),
        "tensor": torch.ones(2, 5, 1),
    }


def tensor_poisons(t: Tensor) -> dict[str, Tensor]:
    """Return dense tensors by name, to put in place of a valid one."""
    real = t.is_floating_point()
    found = {
        "empty": t.new_zeros(0),
        "no dimensions": t.new_ones(()),
        "one dimension more": t[None],
        "five dimensions": t.new_ones(1, 1, 1, 1, 1),
        "longer": torch.cat([t, t]) if t.ndim else t.new_ones(2),
        "no rows": t[:0] if t.ndim else t.new_zeros(0, 1),
        "no columns": t[..., :0] if t.ndim else t.new_zeros(1, 0),
        "complex": torch.ones(t.shape, dtype=torch.complex128),
        "bool": torch.ones(t.shape, dtype=torch.bool),
        "integers": torch.ones(t.shape, dtype=torch.int64),
        "float16": torch.ones(t.shape, dtype=torch.float16),
        "float8": torch.ones(t.shape).to(torch.float8_e4m3fn),
        "the other precision": t.float() if t.dtype == torch.float64 else t.double(),
    }
    if t.ndim > 1:
        found |= {"one dimension less": t.reshape(-1), "wider": torch.cat([t, t], dim=-1)}
    if real:
        largest = torch.finfo(t.dtype).max
        found |= {
            "nan": _first(t, math.nan),
            "inf": _first(t, math.inf),
            "-inf": _first(t, -math.inf),
            "huge": torch.full_like(t, 0.9 * largest),
            "tiny": torch.full_like(t, 1e-310 if t.dtype == torch.float64 else 1e-40),
            "zeros": torch.zeros_like(t),
        }
    return found


def harmless_tensors(t: Tensor) -> dict[str, Tensor]:
    """Return tensors of the same numbers that must be taken as the valid one is."""
    found = {"not contiguous": torch.stack([t, t], dim=-1)[..., 0]}
    if t.is_floating_point():
        found["requires_grad"] = t.detach().clone().requires_grad_()
    return found


def exotic_tensors(t: Tensor) -> dict[str, Tensor]:
    """Return tensors by name that do not hold their numbers one by one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        flat = t.detach().reshape(1) if t.ndim == 0 else t.detach()
        found = {
            "sparse COO": flat.to_sparse(),
            "meta": t.detach().to("meta"),
            "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(1)]),
            "jagged": torch.nested.nested_tensor(
                [torch.ones(2), torch.ones(1)], layout=torch.jagged
            ),
            "quantized": torch.quantize_per_tensor(flat.float(), 1.0, 0, torch.qint8),
        }
        if t.ndim == 2:
            found["sparse CSR"] = flat.to_sparse_csr()
        return found


def _first(t: Tensor, value: float) -> Tensor:
    out = t.detach().clone()
    out.reshape(-1)[0] = value
    return out


# ------------------------------------------------------------------------------------------------
# Places of arguments
# ------------------------------------------------------------------------------------------------


def places(arguments: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every argument, and of what is inside of containers of tensors."""
    for name, value in arguments.items():
        if name == "*":
            yield from ((name, i) for i in range(len(value)))
            continue
        yield (name,)
        items = value.items() if isinstance(value, dict) else ()
        items = enumerate(value) if isinstance(value, (tuple, list)) else items
        for key, item in items:
            if isinstance(item, Tensor):
                yield (name, key)


def look(arguments: Any, place: tuple[Any, ...]) -> Any:
    """Return what is at a place."""
    for key in place:
        arguments = arguments[key]
    return arguments


def put(arguments: Any, place: tuple[Any, ...], value: Any) -> Any:
    """Return arguments with one place changed."""
    if not place:
        return value
    key, *rest = place
    inside = put(arguments[key], tuple(rest), value)
    if isinstance(arguments, dict):
        return {**arguments, key: inside}
    changed = [*arguments]
    changed[key] = inside
    return type(arguments)(changed)


# ------------------------------------------------------------------------------------------------
# Outcomes
# ------------------------------------------------------------------------------------------------


class TooSlowError(BaseException):
    """A call did not come back; not an `Exception`, so that nobody catches it."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a call.

    Attributes:
        kind: "answered", "refused", "raw" (another exception), "no sentence" (an error of ours
            with another message), "not finite" or "slow".
        detail: What came, in few words.
        infinite: Where the answer holds NaN, an infinity, or a tensor without numbers.
    """

    kind: str
    detail: str = ""
    infinite: frozenset[str] = frozenset()


def run(call: Call) -> Outcome:
    """Make a call and sort what comes back."""
    function, arguments = call
    positional = arguments.get("*", ())
    named = {name: value for name, value in arguments.items() if name != "*"}
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"), _alarm():
            warnings.simplefilter("ignore")
            result = function(*positional, **named)
            if hasattr(result, "__enter__") and hasattr(result, "__exit__"):
                with result:
                    pass
            return Outcome("answered", infinite=not_finite(result))
    except NatgradError as error:
        return (
            Outcome("refused") if _is_sentence(str(error)) else Outcome("no sentence", str(error))
        )
    except TooSlowError:
        return Outcome("slow", f"did not come back within {SECONDS:g} s")
    except Exception as error:
        line = (str(error).splitlines() or [""])[0]
        return Outcome("raw", f"{type(error).__name__}: {line}"[:120])


def not_finite(value: Any, path: str = "", depth: int = 4) -> frozenset[str]:
    """Return where a result holds NaN, an infinity, or a tensor without numbers."""
    if isinstance(value, Tensor):
        return frozenset() if _is_finite(value) else frozenset([path])
    if isinstance(value, np.ndarray):
        real = value.dtype.kind in "fc"
        return frozenset([path]) if real and not np.isfinite(value).all() else frozenset()
    if isinstance(value, (float, complex)):
        return frozenset() if abs(value) < math.inf else frozenset([path])
    if depth == 0:
        return frozenset()
    inside: Any = ()
    if isinstance(value, Mapping):
        inside = value.items()
    elif isinstance(value, (tuple, list)):
        inside = enumerate(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
    parts = [not_finite(item, f"{path}.{key}", depth - 1) for key, item in inside]
    return frozenset().union(*parts)


def _is_finite(t: Tensor) -> bool:
    if t.is_nested or t.is_meta or t.is_quantized or t.layout != torch.strided:
        return False
    if not t.is_floating_point() and not t.is_complex():
        return True
    return bool(torch.isfinite(t.to(torch.complex128)).all())  # float8 knows no isfinite


def _is_sentence(message: str) -> bool:
    return 10 < len(message) < LONGEST_MESSAGE and message[-1] in ".?"


@contextmanager
def _alarm() -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ------------------------------------------------------------------------------------------------
# The whole table
# ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Failure:
    """A poisoned call that was neither refused in a sentence nor answered with finite numbers."""

    callable: str
    place: tuple[Any, ...]
    sort: str
    poison: str
    outcome: Outcome

    def __str__(self) -> str:
        place = ".".join(map(str, self.place))
        return f"{place} = {self.poison}: {self.outcome.kind} {self.outcome.detail}".rstrip()


# Options whose documentation gives infinity a meaning: a bound that is never reached.
INFINITE = {
    *((f"natgrad.linalg.norms.{norm}", "p") for norm in ("Group", "Lp", "as_norm")),
    ("natgrad.optim.Factors", "memory"),
    ("natgrad.optim.Falling", "reject"),
    *(
        ("natgrad.optim.Adaptive", option)
        for option in ("low", "high", "least_alpha", "least_share", "reject")
    ),
}


def poison_all(
    name: str,
    make: Callable[[], Call],
    *,
    hands_on: bool = False,
    documented: Mapping[str, Set[str]] | None = None,
    every: int = 1,
) -> tuple[int, list[Failure]]:
    """Poison every argument of one callable; return the number of calls, and the failures.

    Args:
        name: Of the callable.
        make: Makes a valid call.
        hands_on: Whether it is a map between tensors that may hand on what it is given: NaN in,
            NaN out.
        every: Take every so many of the poisons, starting elsewhere at each place.
        documented: Where the answer may be NaN or infinite, by poison: the docstring says so.
    """
    run(make())  # what happens once only
    valid = run(make())
    function, arguments = make()
    calls, failures = 0, []
    for offset, place in enumerate(places(arguments), start=len(name)):
        poisons = list(_poisons(look(arguments, place)))
        for sort, poison, value in poisons[offset % every :: every]:
            fresh, others = make()
            outcome = run((fresh, put(others, place, value)))
            calls += 1
            if outcome.kind == "answered":
                handed_on = hands_on and sort != "python"
                new = outcome.infinite - valid.infinite - (documented or {}).get(poison, set())
                meant = _is_default(function, place, value) or (name, place[0]) in INFINITE
                if new and not handed_on and not meant:
                    outcome = Outcome("not finite", f"at {sorted(new)[:2]}")
            harmless_refused = (
                sort == "harmless" and outcome.kind == "refused" and valid.kind == "answered"
            )
            if outcome.kind not in ("answered", "refused") or harmless_refused:
                failures.append(Failure(name, place, sort, poison, outcome))
    return calls, failures


def _poisons(valid: Any) -> Iterator[tuple[str, str, Any]]:
    like = valid if isinstance(valid, Tensor) else torch.ones(2, 2, dtype=torch.float64)
    sorts: dict[str, dict[str, Any]] = {
        "python": python_poisons(valid),
        "exotic": exotic_tensors(like),
    }
    if isinstance(valid, Tensor):
        sorts |= {"dense": tensor_poisons(valid), "harmless": harmless_tensors(valid)}
    for sort, poisons in sorts.items():
        for poison, value in poisons.items():
            yield sort, poison, value


def _is_default(function: Any, place: tuple[Any, ...], value: Any) -> bool:
    """Return whether an infinity is what an option has anyway."""
    parameter = inspect.signature(function).parameters.get(str(place[0]))
    return parameter is not None and isinstance(value, float) and parameter.default == value
