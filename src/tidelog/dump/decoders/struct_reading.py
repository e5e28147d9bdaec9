"""What releases up to 2.7 say of a broken value: they read by schemas that name the field, and why.

    org.apache.kafka.common.protocol.types.SchemaException: Error reading field 'members': Error reading field …

The bytes are those of the same messages; only the words differ from `java_reading`, and some names.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.dump.decoders.java_reading import JavaBuffer
from tidelog.dump.java_errors import JavaError
from tidelog.errors import ProtocolError
from tidelog.protocol import MessageType, Struct
from tidelog.protocol.schema import Field, StructSchema

__all__ = ["SCHEMA_EXCEPTION", "SchemaRules", "read_by_schema", "schema_error"]

SCHEMA_EXCEPTION = "org.apache.kafka.common.protocol.types.SchemaException"

_FIXED_SIZES = {"int8": 1, "int16": 2, "int32": 4, "int64": 8}


class SchemaRules(NamedTuple):
    """What the schemas of a release allow."""

    null_text: bool = True  # since 0.10.1
    checked_lengths: bool = True  # since 0.10.0; before, Java tries to make what cannot be


_LATER_RULES = SchemaRules()


def read_by_schema(
    message: MessageType,
    buffer: JavaBuffer,
    version: int,
    names: Mapping[str, str] | None = None,
    rules: SchemaRules = _LATER_RULES,
) -> Struct:
    """The message at the position of the buffer; `names` are those that the schemas spell differently."""
    start = buffer.position
    try:
        value, buffer.position = message.read_from(buffer.data, version, start)
        is_readable = True
    except ProtocolError:
        is_readable = False
    if not is_readable or not rules.null_text:
        buffer.position = start
        _Walk(buffer, version, names or {}, rules).struct(message.schema.struct)
    return value


def schema_error(field: str, error: JavaError) -> JavaError:
    """The exception of a field, around that of its type."""
    reason = error.class_name if error.message is None else error.message
    return JavaError(SCHEMA_EXCEPTION, f"Error reading field '{field}': {reason}")


class _Walk:
    """A look at bytes field by field, up to the exception if there is one."""

    def __init__(self, buffer: JavaBuffer, version: int, names: Mapping[str, str], rules: SchemaRules) -> None:
        self._buffer = buffer
        self._version = version
        self._names = names
        self._rules = rules

    def struct(self, schema: StructSchema) -> None:
        for field in schema.fields:
            if self._version in field.versions:
                try:
                    self._field(field)
                except JavaError as error:
                    raise schema_error(self._names.get(field.attribute, field.attribute), error) from error

    def _field(self, field: Field) -> None:
        nullable = field.is_nullable(self._version)
        if field.type == "array":
            for _ in range(self._length("array", self._buffer.read_int(), nullable)):
                if field.struct:
                    self.struct(field.struct)
                else:
                    self._scalar(field.element, nullable=False)
        else:
            self._scalar(field.type, nullable)

    def _scalar(self, type_name: str, nullable: bool) -> None:
        if type_name in _FIXED_SIZES:
            self._buffer.skip(_FIXED_SIZES[type_name])
        elif type_name == "string":
            nullable = nullable and self._rules.null_text
            self._buffer.skip(self._length("string", self._buffer.read_short(), nullable))
        else:
            self._buffer.skip(self._length("bytes", self._buffer.read_int(), nullable))

    def _length(self, what: str, length: int, nullable: bool) -> int:
        """The length if it can be; a null has none."""
        measure = "length" if what == "string" else "size"
        if length < 0:
            if nullable:
                return 0
            if not self._rules.checked_lengths:
                raise JavaError("java.lang.NegativeArraySizeException", str(length))
            raise JavaError(SCHEMA_EXCEPTION, f"{what.capitalize()} {measure} {length} cannot be negative")
        if length > self._buffer.remaining and self._rules.checked_lengths:
            raise JavaError(
                SCHEMA_EXCEPTION,
                f"Error reading {what} of {measure} {length}, only {self._buffer.remaining} bytes available",
            )
        return length
