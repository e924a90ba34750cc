"""Values of annotated classes, as JSON and back, with msgspec or pydantic."""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from blueque.errors import InvalidInput, InvalidType, NotInstalled

_JSON = (dict, list, str, int, float, bool, type(None))
# Where classes keep the names of their fields: dataclasses, msgspec, pydantic, named tuples.
_FIELDS = ("__dataclass_fields__", "__struct_fields__", "model_fields", "_fields")
_AT = " - at `$"  # begins the place in an error of msgspec
_OF_VALIDATORS = (LookupError, AttributeError, AssertionError)  # and of __post_init__
_REFUSED = (TypeError, ValueError, ArithmeticError, *_OF_VALIDATORS)
_CHANGED = "it would come back as another value"


class Converter:
    """The values of one annotated type. Raises NotInstalled; InvalidType for a type that cannot be
    built from JSON.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        if not _is_model(kind):
            _require_known(kind)

    def to_json(self, value: Any, what: str) -> Any:
        """Return JSON types from which `from_json` builds an equal value. Raises InvalidType;
        InvalidInput if it is nested too deeply.

        what: the name of the value in an error, such as "the result".
        """
        try:
            if _is_model(self._kind) and not isinstance(value, self._kind):
                value = _with_place(self._kind.model_validate, value)
            _set_defaults(value)
            plain = _to_plain(self._kind, value)
            lost = _first_lost(value, self.from_json(plain, what))
        except RecursionError as error:
            raise InvalidInput(f"{what}: nested too deeply for JSON") from error
        except InvalidType:
            raise
        except _REFUSED as error:
            raise _refusal(what, error) from error
        if lost is not None:
            raise _refusal(what, lost)
        return plain

    def from_json(self, value: Any, what: str) -> Any:
        """Return the value that was encoded. Raises InvalidType if it does not fit the type."""
        try:
            if _is_model(self._kind):
                return _build(self._kind, value)
            import msgspec  # here: it is an extra

            return msgspec.convert(value, self._kind, str_keys=True, dec_hook=_build)
        except _REFUSED as error:
            raise _refusal(what, error) from error


class Types(NamedTuple):
    """The converters of a handler for its parameters and its result. None: plain JSON."""

    parameters: Converter | None = None
    result: Converter | None = None


def converter_of(kind: Any) -> Converter | None:
    """Return the converter for an annotation. None: only JSON types, which stay unchecked."""
    return None if _is_json(kind) else Converter(kind)


def parts_of(value: Any) -> Mapping[Any, Any] | None:
    """Return the values inside a value, by field, key or number. None: it has none."""
    kind = type(value)
    names = next((getattr(kind, name) for name in _FIELDS if hasattr(kind, name)), None)
    if names is not None:
        private = getattr(value, "__pydantic_private__", None) or {}
        return {name: getattr(value, name, None) for name in (*names, *private)}
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    return value if isinstance(value, Mapping) else None


def _is_json(kind: Any) -> bool:
    origin, inner = get_origin(kind), get_args(kind)
    if hasattr(kind, "__supertype__"):  # a NewType
        return _is_json(kind.__supertype__)
    if origin is None:
        return kind is None or kind is Any or _has_json(kind)
    if origin is Annotated:
        return _is_json(inner[0]) and all(type(each).__module__ != "msgspec" for each in inner[1:])
    if origin is Literal:
        return all(type(value) in _JSON for value in inner)
    if origin not in (Union, types.UnionType):
        has_text_keys = len(inner) < 2 or inner[0] is str  # JSON has no others
        return _has_json(origin) and has_text_keys and all(map(_is_json, inner))
    return all(map(_is_json, inner))


def _has_json(kind: Any) -> bool:
    """Return whether all values of a JSON type belong to this class, as for object, Mapping or a
    protocol.
    """
    try:
        return isinstance(kind, type) and any(issubclass(one, kind) for one in _JSON)
    except TypeError:  # a protocol that cannot be checked, or a TypedDict
        return hasattr(kind, "_is_protocol")


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_validate_json")  # of pydantic


def _is_known(kind: type) -> bool:
    """Return whether `_build` knows a class that msgspec does not know."""
    is_numpy = kind.__module__ == "numpy" and (
        kind.__name__ == "ndarray" or hasattr(kind, "is_integer")
    )
    return is_numpy or hasattr(kind, "__fspath__") or _is_model(kind) or _has_json(kind)


def _require_known(kind: Any) -> None:
    """Raise InvalidType unless values of a type can be built from JSON; NotInstalled."""
    try:
        import msgspec.inspect
    except ImportError as error:
        what = f"converting values of the type {_name(kind)}"
        raise NotInstalled(what, "msgspec", "types") from error
    try:
        left: list[Any] = [msgspec.inspect.type_info(kind)]
    except (TypeError, ValueError) as error:
        raise InvalidType(f"no value of {_name(kind)} can be converted: {error}") from None
    seen = set[int]()  # a class may have fields of its own type
    while left:
        node = left.pop()
        if isinstance(node, tuple):
            left += node
        elif isinstance(node, msgspec.Struct) and id(node) not in seen:
            seen.add(id(node))
            left += [getattr(node, name) for name in node.__struct_fields__]
            if isinstance(node, msgspec.inspect.CustomType) and not _is_known(node.cls):
                raise InvalidType(
                    f"no {_name(node.cls)} can be built from JSON: annotate a dict, a TypedDict, a dataclass, or a model "
                    "of msgspec or pydantic"
                )


def _set_defaults(value: Any) -> None:
    """Set the defaults that a dataclass made by msgspec has at its class only: they are not encoded."""
    if value is None or isinstance(value, str | int | float | type):  # the usual case
        return
    own = getattr(value, "__dict__", None)
    if own is not None and is_dataclass(value):
        missing = [field.name for field in fields(value) if field.name not in own]
        own.update({name: getattr(value, name) for name in missing if hasattr(value, name)})
    if not isinstance(value, list | tuple | set | frozenset):
        value = (parts_of(value) or {}).values()
    for part in value:
        _set_defaults(part)


def _to_plain(kind: Any, value: Any) -> Any:
    """Return a value in JSON types. Raises ValueError, TypeError."""
    if _is_model(kind):
        return _encode(value)
    import msgspec  # here: it is an extra

    return msgspec.to_builtins(value, str_keys=True, enc_hook=_encode)


def _encode(value: Any) -> Any:
    """Return a value that msgspec cannot encode in types that it can. None: an unknown value."""
    if _is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    if not hasattr(value, "dtype"):
        return None
    if getattr(value.dtype, "kind", "f") not in "biuf":  # of numpy; torch has no such names
        raise TypeError(f"it is of the type {value.dtype}, which JSON does not have")
    return value.tolist()


def _build(kind: Any, value: Any) -> Any:
    """Return the value of a class that `_is_known`. Raises ValueError, TypeError."""
    made = get_origin(kind) or kind
    if _is_model(made):
        return _with_place(kind.model_validate_json, json.dumps(value))
    if _has_json(made):
        return value
    takes: Any = str  # for a path
    if made.__module__ == "numpy":
        import numpy

        if made is numpy.ndarray:
            if not isinstance(value, list):
                raise TypeError(f"Expected ndarray, got {type(value).__name__}")
            inner = [one for part in get_args(kind) for one in get_args(part)]
            dtypes = [one for one in inner if isinstance(one, type)]
            return numpy.array(value, dtypes[-1] if dtypes else None)
        takes = int if issubclass(made, numpy.integer) else int | float
    if not isinstance(value, takes):
        raise TypeError(f"Expected {made.__name__}, got {type(value).__name__}")
    return made(value)


def _with_place(validate: Callable[[Any], Any], value: Any) -> Any:
    """Call a function of pydantic. Its ValueError ends with the place of the first mistake."""
    try:
        return validate(value)
    except ValueError as error:
        first = error.errors(include_url=False)[0]  # type: ignore[attr-defined]
        raise ValueError(f"{first['msg']}{_AT}{''.join(map(_step, first['loc']))}`") from None


def _first_lost(value: Any, built: Any, is_field: bool = False) -> str | None:
    """Return the first part that would come back changed, and its place. None: there is no such part.

    is_field: the value is a field of an object. In a dict, "3" may stand for a number.
    """
    if getattr(value, "shape", None) is not None and hasattr(value, "dtype"):
        return _lost_numbers(value, built)
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, Enum)):
        return None if not is_field or _is_same(value, built) else _CHANGED
    if type(built) in _JSON and not isinstance(value, dict | list | tuple):
        return f"it is of the type {type(value).__name__}, which the annotation does not name"
    ours, theirs = parts_of(value), parts_of(built)
    if ours is None or theirs is None:
        return None if _is_same(value, built) else _CHANGED
    has_fields = any(hasattr(type(value), name) for name in _FIELDS)
    if has_fields and type(value) is not type(built):
        return f"it is a {type(value).__name__}, and would come back as a {type(built).__name__}"
    for key, inner in ours.items():
        if key not in theirs and not isinstance(key, str):
            return f"it has the key {key!r}, not a string: write it as one"
        if key not in theirs and not _takes(type(built), key):
            return f"it has the key {key!r}, which the annotation does not name"
        if key in theirs and (lost := _first_lost(inner, theirs[key], has_fields)):
            said, _, place = lost.partition(_AT)
            return f"{said}{_AT}{_step(key)}{place or '`'}"
    return None


def _lost_numbers(value: Any, built: Any) -> str | None:
    """Return the same for a number or an array of numpy or torch."""
    if value.shape == () and built is not None:
        return None
    if not hasattr(built, "dtype"):
        return f"it is of the type {type(value).__name__}, which the annotation does not name"
    kinds = [getattr(each.dtype, "kind", "f") for each in (value, built)]
    if tuple(value.shape) != tuple(built.shape) or kinds[0] != kinds[1]:
        return f"its shape {tuple(value.shape)} or type {value.dtype} would come back as another"
    return None


def _is_same(value: Any, built: Any) -> bool:
    try:
        return bool(value == built or value != value)  # the second: NaN
    except Exception:  # what cannot be compared
        return True


def _takes(kind: type, key: str) -> bool:
    """Return whether a class may take a field by this name, such as an alias."""
    return hasattr(kind, "model_fields") or key in getattr(kind, "__struct_encode_fields__", ())


def _step(key: Any) -> str:
    return f".{key}" if isinstance(key, str) else f"[{key!r}]"


def _refusal(what: str, why: str | Exception) -> InvalidType:
    """Return the error for a part of a value.

    what: the name of the value, such as "the result". why: ends with the place of the part, or with
        several, inner ones first.
    """
    said = f"a validator raised {why!r}" if isinstance(why, _OF_VALIDATORS) else str(why)
    name = what.removeprefix("the ")
    begin = name.partition(" ")[0]
    said, *places = said.replace(" - at `key` in", " of a key - at").split(_AT)
    place = "".join(each.rstrip("`") for each in reversed(places))
    sentence = f"{begin}{place}: {said[:1].lower()}{said[1:].replace('`', '')}"
    return InvalidType(sentence if begin == name else f"{what}: {sentence}")


def _name(kind: Any) -> str:
    return kind.__qualname__ if isinstance(kind, type) else str(kind)
