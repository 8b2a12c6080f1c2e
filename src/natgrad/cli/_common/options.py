"""Options as people read them: `--depth INT`, not `--depth {None}|INT`."""

import dataclasses
import functools
import operator
import types
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, Union, cast, get_args

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    UnsupportedTypeAnnotationError,
)

_T = TypeVar("_T")
_Spec = PrimitiveConstructorSpec[Any]


def from_words(target: Callable[..., _T], **given: Any) -> _T:
    """Return `tyro.cli(target, ...)`, where an option that may be None shows only its type.

    Example:
        >>> def command(depth: int | None = None) -> int | None:
        ...     return depth
        >>> [from_words(command, args=["--depth", word]) for word in ("3", "None")]
        [3, None]
    """
    registry = ConstructorRegistry()
    registry.primitive_rule(_optional)
    return cast(_T, tyro.cli(target, registry=registry, **given))


def _optional(info: PrimitiveTypeInfo) -> "_Spec | UnsupportedTypeAnnotationError | None":
    """Return how a type or None is read: the word None stands for it and is not advertised."""
    options = get_args(info.type) if info.type_origin in (Union, types.UnionType) else ()
    if type(None) not in options:
        return None
    rest = functools.reduce(operator.or_, (t for t in options if t is not type(None)))
    inner = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(rest, info.markers))
    if isinstance(inner, UnsupportedTypeAnnotationError):
        return inner
    return dataclasses.replace(
        inner,
        nargs=(1, inner.nargs) if isinstance(inner.nargs, int) and inner.nargs > 1 else inner.nargs,
        instance_from_str=functools.partial(_read, inner),
        is_instance=lambda value: value is None or inner.is_instance(value),
        str_from_instance=lambda value: (
            ["None"] if value is None else inner.str_from_instance(value)
        ),
        choices=None if inner.choices is None else (*inner.choices, "None"),
    )


def _read(inner: _Spec, words: Sequence[str]) -> Any:
    return None if list(words) == ["None"] else inner.instance_from_str(list(words))
