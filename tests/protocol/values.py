"""Values of any message, by chance: what its schema allows in one version, the limits more often than chance would."""

import uuid
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from tidelog import protocol
from tidelog.protocol.schema import Field, StructSchema

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
}
TEXTS = ["", "a", "orders", "h\u00e9 \u20ac \U0001f600", '"\\/\b\t\n\f\r\x00\x1f\x7f', "x" * 126, "y" * 127, "z" * 300]
DOUBLES = [0.0, -0.0, 1.0, 0.5, 100.0, 0.001, 1e-5, 9999999.0, 1e7, 12345678.5, -1.5e300, float("inf"), float("nan")]


class Version(NamedTuple):
    """A message in one of its versions."""

    message: protocol.MessageType
    number: int

    def __str__(self) -> str:
        return f"{self.message.name}-{self.number}"


def all_versions() -> Iterator[Version]:
    """Every message in every version, 728 of them."""
    for name in protocol.message_names():
        for number in protocol.message(name).valid_versions:
            yield Version(protocol.message(name), number)


class Dice:
    """Makes values. `tame` numbers are those that other libraries turn into dates, durations and names of errors."""

    def __init__(self, random: Random, *, tame: bool = False, unknown_tags: bool = True) -> None:
        self._random = random
        self._tame = tame
        self._unknown_tags = unknown_tags

    def value(self, version: Version) -> protocol.Struct:
        return self._struct(version.message.schema.struct, version)

    def _struct(self, schema: StructSchema, version: Version) -> protocol.Struct:
        present = [field for field in schema.fields if version.number in field.versions]
        value = schema.python_class(**{field.attribute: self._field(field, version) for field in present})
        if version.number in version.message.flexible_versions and self._unknown_tags and self._random.random() < 0.1:
            defined = sum(field.tag >= 0 for field in schema.fields)
            value.unknown_tags = {defined: b"", defined + 3: b"later", 2**31 - 2: bytes(200)}
        return value

    def _field(self, field: Field, version: Version) -> Any:
        if field.is_tagged(version.number) and self._random.random() < 0.4:
            return field.new_default()
        if field.is_nullable(version.number) and self._random.random() < 0.25:
            return None
        if field.type != "array":
            return self._one(field.type, field, version)
        return [self._one(field.element, field, version) for _ in range(self._random.choice([0, 1, 1, 2, 3]))]

    def _one(self, type_name: str, field: Field, version: Version) -> Any:
        if type_name == "struct":
            assert field.struct
            return self._struct(field.struct, version)
        if type_name in INTEGERS:
            return self._integer(type_name)
        if type_name == "string":
            return self._random.choice(TEXTS)
        if type_name in ("bytes", "records"):
            return self._random.choice([b"", b"\0", self._bytes(5), self._bytes(127), self._bytes(20_000)])
        if type_name == "uuid":
            return uuid.UUID(int=self._random.choice([0, 1, 2**128 - 1, self._random.getrandbits(128)]))
        if type_name == "float64":
            return self._random.choice(DOUBLES[:-1] if self._tame else DOUBLES)
        assert type_name == "bool"
        return self._random.random() < 0.5

    def _integer(self, type_name: str) -> int:
        if self._tame:
            return self._random.choice([0, 1, 2, 3, 89])
        low, high = INTEGERS[type_name]
        return self._random.choice([0, 1, low, high, max(low, -1), self._random.randint(low, high)])

    def _bytes(self, size: int) -> bytes:
        return self._random.getrandbits(8 * size).to_bytes(size, "big")
