"""The types that a handler's annotations give its parameters and its result."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine
from typing import Any, Never, NoReturn, Union, get_args, get_origin

from blueque.errors import InvalidType
from blueque.model.converter import Types, converter_of
from blueque.model.outcomes import Outcome

_VARIABLE = 0x4  # inspect.CO_VARARGS


def types_of(function: Callable[..., Any]) -> Types:
    """Return the converters for the second argument and the result of a function, method or
    callable instance. Without annotations, nothing is converted.

    Raises NameError if an annotation names what the module of the function does not have (yet);
        InvalidType, NotInstalled.
    """
    called: Any = function
    place = 1  # of the parameters
    while hasattr(called, "__wrapped__") and _passes_all(called):
        place += isinstance(called, types.MethodType)
        called = called.__wrapped__
    if not isinstance(called, types.FunctionType | types.MethodType):
        called = called.__call__  # of an instance
    if isinstance(called, types.MethodType):
        called, place = called.__func__, place + 1
    # functools.wraps copies the annotations of another function
    if not isinstance(called, types.FunctionType) or hasattr(called, "__wrapped__"):
        return Types()
    found = _annotations(called)
    names = called.__code__.co_varnames[: called.__code__.co_argcount]
    kinds = [
        _evaluated(found[name], called) if name in found else Any
        for name in (names[place] if len(names) > place else None, "return")
    ]
    return Types(converter_of(kinds[0]), converter_of(_result_in(kinds[1])))


def _passes_all(function: Any) -> bool:
    """Return whether a wrapper takes any arguments, and so those of the function that it wraps."""
    called = function if hasattr(function, "__code__") else function.__call__
    most = 2 if isinstance(called, types.MethodType) else 1  # self and the task
    code = getattr(called, "__code__", None)
    return code is not None and code.co_flags & _VARIABLE and code.co_argcount <= most


def _annotations(function: types.FunctionType) -> dict[str, Any]:
    try:
        return function.__annotations__
    except Exception:  # from Python 3.14 on: some name that only type checkers know, as of the task
        import annotationlib  # type: ignore[import-not-found]

        return annotationlib.get_annotations(function, format=annotationlib.Format.STRING)


def _evaluated(kind: Any, function: types.FunctionType) -> Any:
    if not isinstance(kind, str):
        return kind
    try:
        return eval(kind, function.__globals__)
    except NameError:
        raise
    except Exception as error:
        name, why = f"{function.__module__}:{function.__qualname__}", getattr(error, "msg", error)
        raise InvalidType(f"the annotation {kind!r} of {name} cannot be read: {why}") from error


def _result_in(kind: Any) -> Any:
    """Return the type of the result in the return annotation."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is NoReturn or kind is Never:
        return Any
    if origin in (Union, types.UnionType):
        return Union[tuple(map(_result_in, inner))]  # noqa: UP007
    made = origin or kind
    if isinstance(made, type) and issubclass(made, Outcome):
        return _result_in(inner[0]) if inner else Any
    return _result_in(inner[2]) if made is Coroutine and inner else kind
