"""Messages read as Kafka's own classes read them: the same versions accepted, the same words for what is broken.

The readers of `tidelog.protocol` succeed where Kafka's do. What is added here is what the tool's text shows of the
rest. A version that a message does not have is read as the nearest one that it has, except that the structs written
out inside a message refuse versions above it. And bytes that end too soon, or have a length that cannot be, are walked
through once more to find the exception that Java would have thrown.
"""

import struct
from typing import NoReturn

from tidelog.dump.java_errors import JavaError
from tidelog.dump.releases import Release, Version
from tidelog.errors import ProtocolError
from tidelog.protocol import MessageType, Struct
from tidelog.protocol.schema import Field, StructSchema
from tidelog.records.java import wrap_int32

__all__ = ["JavaBuffer", "as_json", "lengths_are_checked", "read_message", "reason_of", "wrap_int16"]

_MAX_STRING_BYTES = 2**15 - 1
_FIXED_SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
# Messages whose inner structs are shared ones, which do not look at the version.
_SHARED_STRUCTS = frozenset({"GroupMetadataValue", "ConsumerGroupCurrentMemberAssignmentValue", "LeaderChangeMessage"})
_FIRST_CAREFUL_PATCHES: dict[Version, int] = {(2, 8): 2, (3, 0): 2, (3, 1): 2, (3, 2): 3}
# Messages whose bytes are not copied but are slices of the buffer, which refuses in its own words.
_SLICED_BYTES = frozenset({"ConsumerProtocolAssignment", "ConsumerProtocolSubscription"})


class JavaBuffer:
    """A ByteBuffer: bytes and a position. Reading beyond the end is an exception without a message."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    @property
    def remaining(self) -> int:
        return len(self.data) - self.position

    def skip(self, size: int) -> None:
        if size > self.remaining:
            raise JavaError("java.nio.BufferUnderflowException")
        self.position += size

    def read_short(self) -> int:
        return self._number(">h")

    def read_int(self) -> int:
        return self._number(">i")

    def _number(self, layout: str) -> int:
        start = self.position
        self.skip(struct.calcsize(layout))
        number: int = struct.unpack_from(layout, self.data, start)[0]
        return number

    def read_unsigned_varint(self) -> int:
        """At most five bytes, of which a JVM keeps 32 bits."""
        value = 0
        for shift in range(0, 35, 7):
            start = self.position
            self.skip(1)
            byte = self.data[start]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return wrap_int32(value)
        raise JavaError(
            "java.lang.IllegalArgumentException",
            "Varint is too long, the most significant bit in the 5th byte is set, "
            f"converted value: {value & 0xFFFFFFFF:x}",
        )


def wrap_int16(value: int) -> int:
    """The number a Java `short` would hold."""
    return (value + 2**15) % 2**16 - 2**15


def reason_of(error: JavaError) -> str:
    """The message of an exception, as Java puts it into a text."""
    return "null" if error.message is None else error.message


def lengths_are_checked(release: Release) -> bool:
    """Whether generated classes compare a length with the bytes left: so do 3.3 and the last patches before it."""
    major_minor, patch = release.version[:2], release.version[2]
    return patch >= _FIRST_CAREFUL_PATCHES.get(major_minor, 0) and major_minor >= (2, 8)


def read_message(message: MessageType, buffer: JavaBuffer, version: int, *, checked: bool = True) -> Struct:
    """The message at the position of the buffer, which is moved behind it; or the exception that Java throws.

    With `checked`, lengths are compared with the bytes left, see `lengths_are_checked`.
    """
    nearest = _nearest_version(message, version)
    try:
        value, buffer.position = message.read_from(buffer.data, nearest, buffer.position)
    except ProtocolError:
        _Walk(buffer, nearest, version, checked).message(message)
    if version > nearest and message.name not in _SHARED_STRUCTS:
        _refuse_inner_structs(message.fields, value, version)
    return value


def as_json(message: MessageType, value: Struct, version: int) -> dict[str, object]:
    """The message as Kafka's JSON converters write it, in any version."""
    return message.to_json(value, _nearest_version(message, version))


def _nearest_version(message: MessageType, version: int) -> int:
    if version in message.valid_versions:
        return version
    return min(max(version, message.valid_versions[0]), message.valid_versions[-1])


def _refuse_inner_structs(fields: tuple[Field, ...], value: Struct, version: int) -> None:
    for field in fields:
        content = getattr(value, field.attribute)
        was_read = content is not None and not (field.tag >= 0 and field.is_default(content))
        if field.struct and was_read and content != []:
            raise JavaError(
                "org.apache.kafka.common.errors.UnsupportedVersionException",
                f"Can't read version {version} of {field.struct.name}",
            )


class _Walk:
    """A second look at bytes that could not be read, field by field, up to the exception."""

    def __init__(self, buffer: JavaBuffer, version: int, version_given: int, checked: bool) -> None:
        self._buffer = buffer
        self._checked = checked
        self._version = version
        self._version_given = version_given
        self._is_flexible = False
        self._slices = False

    def message(self, message: MessageType) -> NoReturn:
        self._is_flexible = self._version in message.flexible_versions
        self._slices = message.name in _SLICED_BYTES
        self._struct(message.schema.struct)
        raise AssertionError(f"{message.name} could be read after all")

    def _struct(self, schema: StructSchema) -> None:
        for field in schema.fields:
            if self._version in field.versions and not field.is_tagged(self._version):
                self._field(field)
        if self._is_flexible:
            for _ in range(self._buffer.read_unsigned_varint()):
                self._tag(schema)

    def _tag(self, schema: StructSchema) -> None:
        tag, size = self._buffer.read_unsigned_varint(), self._buffer.read_unsigned_varint()
        field = next((field for field in schema.fields if field.tag == tag), None)
        if field is None:
            self._bytes(size)
        elif field.is_tagged(self._version):
            self._field(field)
        else:
            _refuse(f"Tag {tag} is not valid for version {self._version_given}")

    def _field(self, field: Field) -> None:
        if field.type == "struct":
            self._struct_field(field)
        elif field.type == "array":
            self._array(field)
        else:
            self._scalar(field, field.type, field.name, field.is_nullable(self._version))

    def _struct_field(self, field: Field) -> None:
        assert field.struct
        if field.is_nullable(self._version):
            if field.is_tagged(self._version):
                is_there = self._buffer.read_unsigned_varint() > 0
            else:
                start = self._buffer.position
                self._buffer.skip(1)
                is_there = self._buffer.data[start] < 0x80
            if not is_there:
                return
        self._struct(field.struct)

    def _array(self, field: Field) -> None:
        count = self._length(field, "array")
        if count < 0:
            self._null(field.name, field.is_nullable(self._version))
        if count > self._buffer.remaining and self._checked:
            _refuse(
                f"Tried to allocate a collection of size {count}, "
                f"but there are only {self._buffer.remaining} bytes remaining."
            )
        for _ in range(count):
            if field.struct:
                self._struct(field.struct)
            else:
                self._scalar(field, field.element, f"{field.name} element", nullable=False)

    def _scalar(self, field: Field, type_name: str, name: str, nullable: bool) -> None:
        if type_name in _FIXED_SIZES:
            self._buffer.skip(_FIXED_SIZES[type_name])
        else:
            self._sized(field, type_name, name, nullable)

    def _sized(self, field: Field, type_name: str, name: str, nullable: bool) -> None:
        length = self._length(field, type_name)
        if length < 0:
            self._null(name, nullable)
        elif type_name == "string" and length > _MAX_STRING_BYTES:
            _refuse(f"string field {name} had invalid length {length}")
        else:
            self._bytes(length, self._slices and type_name == "bytes")

    def _length(self, field: Field, type_name: str) -> int:
        if self._version in field.flexible_versions:
            return wrap_int32(self._buffer.read_unsigned_varint() - 1)
        return self._buffer.read_short() if type_name == "string" else self._buffer.read_int()

    def _bytes(self, size: int, slices: bool = False) -> None:
        remaining = self._buffer.remaining
        if size > remaining and slices:
            raise JavaError("java.lang.IllegalArgumentException", f"newLimit > capacity: ({size} > {remaining})")
        if size > remaining and self._checked:
            _refuse(f"Error reading byte array of {size} byte(s): only {remaining} byte(s) available")
        if size < 0:
            raise JavaError("java.lang.NegativeArraySizeException", str(size))
        self._buffer.skip(size)

    def _null(self, name: str, nullable: bool) -> None:
        if not nullable:
            _refuse(f"non-nullable field {name} was serialized as null")


def _refuse(message: str) -> NoReturn:
    raise JavaError("java.lang.RuntimeException", message)
