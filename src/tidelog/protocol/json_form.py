"""Structs as JSON, the way Kafka's own converters write and read it.

Fields stand in the order of the tables, those of the version only; a tagged field at its default is left away. Bytes
are base64, UUIDs Kafka's 22 characters. Kafka does not write unknown tags, and of record data it writes only the size
or nothing (`records="size"` and `records="empty"` here); `records="base64"`, which is the default, loses nothing.
"""

import base64
import uuid
from collections.abc import Mapping
from typing import Any, Literal

from tidelog.errors import InvalidRequestError
from tidelog.protocol.primitives import refuse_null_value, refuse_value
from tidelog.protocol.schema import Field, StructSchema
from tidelog.protocol.structs import Struct

__all__ = ["RecordsForm", "from_json", "to_json", "uuid_text"]

RecordsForm = Literal["base64", "size", "empty"]


def to_json(schema: StructSchema, value: Struct, version: int, records: RecordsForm) -> dict[str, Any]:
    """What JSON says of a struct in one version."""
    node: dict[str, Any] = {}
    for field in schema.fields:
        content = getattr(value, field.attribute)
        if version not in field.versions:
            if not field.ignorable and not field.is_default(content):
                refuse_value(f"{field.name} of {schema.name}")
        elif not field.is_tagged(version) or not field.is_default(content):
            _put(node, schema, field, content, version, records)
    return node


def _put(
    node: dict[str, Any], schema: StructSchema, field: Field, value: Any, version: int, records: RecordsForm
) -> None:
    if value is None:
        if not field.is_nullable(version):
            refuse_null_value(f"{field.name} of {schema.name}")
        node[field.name] = None
    elif field.type == "array":
        node[field.name] = [_scalar(field.element, field.struct, element, version, records) for element in value]
    elif field.type == "records" and records != "base64":
        if records == "size":
            node[field.name + "SizeInBytes"] = len(value)
        else:
            node[field.name] = ""
    else:
        node[field.name] = _scalar(field.type, field.struct, value, version, records)


def _scalar(type_name: str, struct: StructSchema | None, value: Any, version: int, records: RecordsForm) -> Any:
    if struct:
        return to_json(struct, value, version, records)
    if type_name in ("bytes", "records"):
        return base64.b64encode(value).decode()
    return uuid_text(value) if type_name == "uuid" else value


def uuid_text(value: uuid.UUID) -> str:
    """
    >>> uuid_text(uuid.UUID(int=1))
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def from_json(schema: StructSchema, node: Any, version: int) -> Struct:
    """The struct that JSON describes. A field of the version must be there, unless it is a tagged one."""
    if not isinstance(node, Mapping):
        raise InvalidRequestError(f"{schema.name} is a JSON object, not {_shown(node)}")
    fields = {}
    for field in schema.fields:
        if field.name in node:
            fields[field.attribute] = _from_json(schema, field, node[field.name], version)
        elif version in field.versions and not field.is_tagged(version):
            raise InvalidRequestError(f"{schema.name} has no {field.name}, which version {version} must have")
    return schema.python_class(**fields)


def _from_json(schema: StructSchema, field: Field, node: Any, version: int) -> Any:
    path = f"{field.name} of {schema.name}"
    if node is None:
        if not field.is_nullable(version):
            refuse_null_value(path)
        return None
    if field.type != "array":
        return _scalar_from_json(field.type, field.struct, node, version, path)
    if not isinstance(node, list):
        raise InvalidRequestError(f"{path} is a JSON array, not {_shown(node)}")
    return [_scalar_from_json(field.element, field.struct, element, version, path) for element in node]


def _scalar_from_json(type_name: str, struct: StructSchema | None, node: Any, version: int, path: str) -> Any:
    if struct:
        return from_json(struct, node, version)
    if not _is_of_type(node, type_name):
        raise InvalidRequestError(f"{path} cannot be {_shown(node)}: it is of type {type_name}")
    try:
        if type_name in ("bytes", "records"):
            return base64.b64decode(node, validate=True)
        if type_name == "uuid":
            return uuid.UUID(bytes=base64.b64decode(node + "==", altchars=b"-_", validate=True))
    except ValueError:
        raise InvalidRequestError(f"{path} cannot be {_shown(node)}: it is base64 of a {type_name}") from None
    return float(node) if type_name == "float64" else node


def _is_of_type(node: Any, type_name: str) -> bool:
    if type_name in ("string", "bytes", "records", "uuid"):
        return isinstance(node, str)
    if type_name == "bool" or isinstance(node, bool):
        return type_name == "bool" and isinstance(node, bool)
    return isinstance(node, int | float if type_name == "float64" else int)


def _shown(node: Any) -> str:
    text = repr(node)
    return text if len(text) <= 60 else text[:60] + "…"
