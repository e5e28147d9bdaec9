"""A message that Kafka knows: reading it, writing it, and its JSON, in each of its versions."""

import struct
from collections.abc import Callable, Mapping
from typing import Any

from tidelog.errors import InvalidRequestError, ProtocolError, UnsupportedError
from tidelog.protocol import json_form
from tidelog.protocol.json_form import RecordsForm
from tidelog.protocol.misfit import misfit
from tidelog.protocol.reader import compile_reader
from tidelog.protocol.schema import Field, MessageSchema
from tidelog.protocol.structs import Struct
from tidelog.protocol.writer import compile_writer

__all__ = ["MessageType"]


class MessageType:
    """One message of the tables. Readers and writers are compiled when a version is first asked for.

    Safe for use by several threads at once.
    """

    def __init__(self, schema: MessageSchema) -> None:
        self.schema = schema
        self.name = schema.name
        self.kind = schema.kind
        self.api_key = schema.api_key
        self.valid_versions = schema.valid_versions
        self.flexible_versions = schema.flexible_versions
        self.fields: tuple[Field, ...] = schema.struct.fields
        self.structs: Mapping[str, type[Struct]] = {name: inner.python_class for name, inner in schema.structs.items()}
        self._readers: dict[int, Callable[..., tuple[Struct, int]]] = {}
        self._writers: dict[int, Callable[..., None]] = {}

    def __repr__(self) -> str:
        return f"<MessageType {self.name}>"

    def new(self, **fields: Any) -> Struct:
        """A value with these fields; the others have their defaults. Structs inside may be given as dicts."""
        return self.schema.struct.python_class(**fields)

    # --- bytes ---------------------------------------------------------------------------------------------------

    def read(self, buffer: Any, version: int, start: int = 0, *, record_views: bool = False) -> Struct:
        """The value whose bytes begin at `start`. What follows it is not looked at; see `read_from`."""
        return self.read_from(buffer, version, start, record_views=record_views)[0]

    def read_from(self, buffer: Any, version: int, start: int, *, record_views: bool = False) -> tuple[Struct, int]:
        """The value whose bytes begin at `start`, and where they end.

        With `record_views`, fields of type `records` are memoryviews of the buffer instead of copies.
        """
        reader = self._readers.get(version) or self._compile_reader(version)
        source = buffer if type(buffer) is bytes else memoryview(buffer).cast("B")
        size = len(source)
        if not 0 <= start <= size:
            raise ProtocolError(f"{self.name}: position {start} lies outside the {size} bytes given")
        try:
            if record_views:
                return reader(source, start, size, memoryview(source), memoryview)
            return reader(source, start, size, source, bytes)
        except (struct.error, IndexError):
            raise ProtocolError(f"{self.name} version {version}: the bytes end in the middle of it") from None
        except ProtocolError as error:
            raise ProtocolError(f"{self.name} version {version}: {error}") from None

    def write(self, value: Struct, version: int) -> bytes:
        """The bytes of a value."""
        return b"".join(self.write_parts(value, version))

    def write_parts(self, value: Struct, version: int) -> list[bytes | memoryview]:
        """The bytes of a value in pieces, of which data of the value itself is not copied: for `sendmsg`."""
        writer = self._writers.get(version) or self._compile_writer(version)
        parts: list[bytes | memoryview] = []
        try:
            writer(value, parts.append)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{self.name} version {version}: {error}") from None
        except (AttributeError, TypeError, ValueError, struct.error) as error:
            reason = misfit(self.schema.struct, value, version) or str(error)
            raise InvalidRequestError(f"{self.name} version {version}: {reason}") from error
        return parts

    # --- JSON ----------------------------------------------------------------------------------------------------

    def to_json(self, value: Struct, version: int, *, records: RecordsForm = "base64") -> dict[str, Any]:
        """The value as Kafka's JsonConverter writes it; `json_text` makes text of it.

        Kafka leaves record data out and writes its size ("size"), or an empty text ("empty").
        """
        self._check_version(version)
        try:
            return json_form.to_json(self.schema.struct, value, version, records)
        except (AttributeError, TypeError) as error:
            reason = misfit(self.schema.struct, value, version) or str(error)
            raise InvalidRequestError(f"{self.name} version {version}: {reason}") from error

    def from_json(self, node: Mapping[str, Any], version: int) -> Struct:
        """The value that JSON describes."""
        self._check_version(version)
        return json_form.from_json(self.schema.struct, node, version)

    # --- versions ------------------------------------------------------------------------------------------------

    def _compile_reader(self, version: int) -> Callable[..., tuple[Struct, int]]:
        self._check_version(version)
        reader = self._readers[version] = compile_reader(self.schema, version)
        return reader

    def _compile_writer(self, version: int) -> Callable[..., None]:
        self._check_version(version)
        writer = self._writers[version] = compile_writer(self.schema, version)
        return writer

    def _check_version(self, version: int) -> None:
        if version in self.valid_versions:
            return
        if not self.valid_versions:
            raise UnsupportedError(f"{self.name} has no version any more: Kafka 4 removed it")
        there = f"{self.valid_versions[0]} to {self.valid_versions[-1]}"
        raise UnsupportedError(f"{self.name} has no version {version}; there are {there}")
