"""The model of a message: its struct, the fields of that, and the versions in which each exists.

Built from the tables in `messages.jsonl`. Versions are ranges, open ones reach to the end of 16 bits. A struct has a
Python class made for it (see `structs`), which readers fill and writers are given.
"""

import base64
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tidelog.protocol.structs import Struct, struct_class

__all__ = ["ZERO_UUID", "Field", "MessageSchema", "StructSchema", "message_schema", "parse_versions"]

ZERO_UUID = uuid.UUID(int=0)
NO_VERSIONS = range(0)
_FIRST_IMPOSSIBLE_VERSION = 2**15
_INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint16", "uint32"})


class Field(NamedTuple):
    """A field of a struct. `type` is a primitive of Kafka's tables, "array" or "struct"."""

    name: str  # as JSON spells it: camelCase
    attribute: str  # as Python spells it
    type: str
    element: str  # of an array: a primitive, or "struct"
    struct: "StructSchema | None"  # of a struct, or of the elements of an array
    versions: range
    nullable_versions: range
    tagged_versions: range
    tag: int
    flexible_versions: range  # where lengths are varints; nearly always that of the message
    default: Any  # of arrays and structs: None, or the class whose empty value it is
    ignorable: bool
    map_key: bool

    def is_nullable(self, version: int) -> bool:
        return version in self.nullable_versions

    def is_tagged(self, version: int) -> bool:
        return version in self.tagged_versions

    def new_default(self) -> Any:
        """The value of a field that nobody set; a new one where it could be changed."""
        return self.default() if isinstance(self.default, type) else self.default

    def is_default(self, value: Any) -> bool:
        """Whether it would be no loss to leave the value away, as Kafka judges it."""
        if self.default is None or value is None:
            return value is self.default
        if self.type in ("array", "bytes"):
            return len(value) == 0
        return bool(value == self.new_default())


class StructSchema(NamedTuple):
    """A struct: the message itself, or one inside it."""

    name: str
    fields: tuple[Field, ...]
    python_class: type[Struct]


class MessageSchema(NamedTuple):
    """A message as its table describes it."""

    name: str
    module: str  # of Kafka, that speaks it: "clients", "metadata", …
    kind: str  # "request", "response", "header", "metadata", "coordinator-key", "coordinator-value" or "data"
    api_key: int | None
    valid_versions: range
    flexible_versions: range
    listeners: tuple[str, ...]
    latest_version_unstable: bool
    struct: StructSchema
    structs: Mapping[str, StructSchema]  # those inside, by name


def parse_versions(text: str | None) -> range:
    """
    >>> parse_versions("3-5"), parse_versions("2"), parse_versions("7+")
    (range(3, 6), range(2, 3), range(7, 32768))
    >>> parse_versions("none"), parse_versions(None)
    (range(0, 0), range(0, 0))
    """
    if text is None or text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return range(int(text[:-1]), _FIRST_IMPOSSIBLE_VERSION)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def message_schema(table: Mapping[str, Any]) -> MessageSchema:
    """The message that a line of the tables describes."""
    builder = _Builder(table)
    struct = builder.struct(table["name"], table["fields"])
    return MessageSchema(
        name=table["name"],
        module=table["module"],
        kind=table["type"],
        api_key=table.get("apiKey"),
        valid_versions=parse_versions(table["validVersions"]),
        flexible_versions=builder.flexible_versions,
        listeners=tuple(table.get("listeners", ())),
        latest_version_unstable=table.get("latestVersionUnstable", False),
        struct=struct,
        structs=builder.structs,
    )


class _Builder:
    """Builds the structs of one message; a common struct is built once, where it is first used."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.flexible_versions = parse_versions(table.get("flexibleVersions"))
        self.structs: dict[str, StructSchema] = {}
        self._common = {struct["name"]: struct["fields"] for struct in table.get("commonStructs", ())}

    def struct(self, name: str, tables: list[dict[str, Any]]) -> StructSchema:
        fields = tuple(self._field(table) for table in tables)
        python_class = struct_class(name, {field.attribute: field.new_default for field in fields}, _nested(fields))
        return StructSchema(name, fields, python_class)

    def _inner_struct(self, name: str, tables: list[dict[str, Any]] | None) -> StructSchema:
        if name not in self.structs:
            self.structs[name] = self.struct(name, self._common[name] if tables is None else tables)
        return self.structs[name]

    def _field(self, table: dict[str, Any]) -> Field:
        name, type_name = table["name"], table["type"]
        is_array, inner = type_name.startswith("[]"), type_name.removeprefix("[]")
        struct = self._inner_struct(inner, table.get("fields")) if inner[0].isupper() else None
        inner = "struct" if struct else inner
        own_flexible = table.get("flexibleVersions")
        field_type = "array" if is_array else inner
        return Field(
            name=name[0].lower() + name[1:],
            attribute=_snake_case(name),
            type=field_type,
            element=inner if is_array else "",
            struct=struct,
            versions=parse_versions(table["versions"]),
            nullable_versions=parse_versions(table.get("nullableVersions")),
            tagged_versions=parse_versions(table.get("taggedVersions")),
            tag=table.get("tag", -1),
            flexible_versions=parse_versions(own_flexible) if own_flexible else self.flexible_versions,
            default=_default(field_type, table.get("default", ""), struct),
            ignorable=table.get("ignorable", False),
            map_key=table.get("mapKey", False),
        )


def _nested(fields: tuple[Field, ...]) -> dict[str, type[Struct]]:
    return {field.attribute: field.struct.python_class for field in fields if field.struct}


def _default(field_type: str, text: str, struct: StructSchema | None) -> Any:
    if text == "null" or field_type == "records":
        return None
    if field_type == "struct" and struct:
        return struct.python_class
    return _DEFAULTS[field_type](text)


def _integer(text: str) -> int:
    return int(text or "0", 0)


_DEFAULTS: dict[str, Callable[[str], Any]] = {
    "array": lambda text: list,
    "bool": lambda text: text.lower() == "true",
    "bytes": lambda text: b"",
    "float64": lambda text: float(text or "0"),
    "string": str,
    "uuid": lambda text: uuid.UUID(bytes=base64.urlsafe_b64decode(text + "==")) if text else ZERO_UUID,
    **dict.fromkeys(_INTEGERS, _integer),
}


def _snake_case(name: str) -> str:
    """As Kafka's generator parts words: before a capital that follows none.

    >>> _snake_case("ThrottleTimeMs"), _snake_case("KRaftVersion"), _snake_case("V3AndBelowTopics")
    ('throttle_time_ms', 'kraft_version', 'v3_and_below_topics')
    """
    parts = []
    for before, letter in zip("A" + name, name, strict=False):
        parts.append("_" + letter if letter.isupper() and not before.isupper() else letter)
    return "".join(parts).lower()
