"""Which field of a value is to blame when a writer fails: looked for after the failure, so that writing is fast."""

import uuid
from typing import Any

from tidelog.protocol.primitives import MAX_STRING_BYTES
from tidelog.protocol.schema import Field, StructSchema

__all__ = ["misfit"]

_BOUNDS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
}


def misfit(schema: StructSchema, value: Any, version: int) -> str | None:
    """A sentence about the first field that cannot be written, if one can be found."""
    if not isinstance(value, schema.python_class):
        return f"{_shown(value)} is no {schema.name}; make one with new() or from the message's `structs`"
    for field in schema.fields:
        found = _misfit_of_field(field, getattr(value, field.attribute), version) if version in field.versions else None
        if found:
            return found if field.struct else f"{field.name} of {schema.name} {found}"
    return None


def _misfit_of_field(field: Field, value: Any, version: int) -> str | None:
    if value is None:
        return None if field.is_nullable(version) else _without_null(field)
    if field.type != "array":
        return _misfit_of_one(field.type, field.struct, value, version)
    if not isinstance(value, list | tuple):
        return f"is {_shown(value)}, and not a list"
    found = (_misfit_of_one(field.element, field.struct, element, version) for element in value)
    return next(filter(None, found), None)


def _without_null(field: Field) -> str:
    return f"{field.name} is None, which this version cannot say" if field.struct else "is None, which cannot be"


def _misfit_of_one(type_name: str, struct: StructSchema | None, value: Any, version: int) -> str | None:
    if struct:
        return misfit(struct, value, version)
    if type_name in _BOUNDS:
        low, high = _BOUNDS[type_name]
        fits = isinstance(value, int) and low <= value <= high
    elif type_name == "string":
        fits = isinstance(value, str) and _is_short_text(value)
    elif type_name in ("bytes", "records"):
        fits = isinstance(value, bytes | bytearray | memoryview)
    elif type_name == "uuid":
        fits = isinstance(value, uuid.UUID)
    else:
        fits = isinstance(value, int | float)
    return None if fits else f"is {_shown(value)}, and not of type {type_name}"


def _is_short_text(text: str) -> bool:
    try:
        return len(text.encode()) <= MAX_STRING_BYTES
    except UnicodeEncodeError:
        return False


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"
