"""Readers: a function that turns bytes into structs, made for one message in one version.

    function(buffer, at, size, records_from, take_records) -> (struct, where it ended)

Every length is compared with the bytes left before anything is made of it; a number that is cut off raises IndexError
or struct.error, which the caller takes for the end of the bytes. What is strange and yet accepted is what Kafka
accepts: tags in any order, a tag twice (the last counts), the size of a known tag (it is not looked at).
"""

import struct
from collections.abc import Callable
from typing import Any

from tidelog.protocol import primitives
from tidelog.protocol.schema import Field, MessageSchema, StructSchema
from tidelog.protocol.source import FIXED, SHORT_ARRAY, Source, short_arrays

__all__ = ["compile_reader"]

_NAMES = {
    "JAVA_TEXT": primitives.JAVA_TEXT,
    "keep_unknown_tag": primitives.keep_unknown_tag,
    "new": object.__new__,
    "read_varint": primitives.read_varint,
    "refuse_array": primitives.refuse_array,
    "refuse_length": primitives.refuse_length,
    "refuse_null": primitives.refuse_null,
    "refuse_tag": primitives.refuse_tag,
    "refuse_text": primitives.refuse_text,
    "unpack_from": struct.unpack_from,
    "uuid_of": primitives.uuid_of,
}


def compile_reader(schema: MessageSchema, version: int) -> Callable[..., Any]:
    """The reader of a message in one version."""
    return _ReaderSource(schema, version).compile()


class _ReaderSource(Source):
    def __init__(self, schema: MessageSchema, version: int) -> None:
        super().__init__(f"reader of {schema.name} version {version}", _NAMES)
        self._version = version
        self._is_flexible = version in schema.flexible_versions
        self._behind_run: list[str] = []
        with self.block("def function(buffer, at, size, records_from, take_records):"):
            value = self._struct(schema.struct)
            self.end_run()
            self.line(f"return {value}, at")

    def _struct(self, schema: StructSchema) -> str:
        """Read a struct; the name of the variable that holds it."""
        value = self._new_struct(schema)
        for field in schema.fields:
            if self._version in field.versions and not field.is_tagged(self._version):
                self._field(schema, field, f"{value}.{field.attribute}")
            else:
                self._set_default(field, f"{value}.{field.attribute}")
        if self._is_flexible:
            self._tags(schema, value)
        return value

    def _new_struct(self, schema: StructSchema) -> str:
        value = self.variable("struct")
        self.line(f"{value} = new({self.constant(schema.name, schema.python_class)})")
        self.line(f"{value}.unknown_tags = {{}}")
        return value

    def _set_default(self, field: Field, target: str) -> None:
        if field.struct and field.default is field.struct.python_class:
            value = self._new_struct(field.struct)
            for inner in field.struct.fields:
                self._set_default(inner, f"{value}.{inner.attribute}")
            self.line(f"{target} = {value}")
        else:
            self.line(f"{target} = {self.default(field)}")

    def _field(self, schema: StructSchema, field: Field, target: str) -> None:
        path = f"{field.name} of {schema.name}"
        if field.type in FIXED:
            self._fixed(field.type, target)
        elif field.type == "struct":
            self._struct_field(field, target)
        elif field.type == "array":
            self._array(field, target, path)
        else:
            self._bytes_or_text(field, field.type, target, path, field.is_nullable(self._version))

    def _fixed(self, type_name: str, target: str) -> None:
        if type_name == "uuid":
            raw = self.variable("raw")
            self.add_to_run("16s", raw)
            self._behind_run.append(f"{target} = uuid_of({raw})")
        else:
            self.add_to_run(FIXED[type_name], target)

    def handle_run(self, layout: struct.Struct, expressions: list[str]) -> None:
        self.line(f"{', '.join(expressions)}, = {self.constant('unpack', layout.unpack_from)}(buffer, at)")
        self.line(f"at += {layout.size}")
        for text in self._behind_run:
            self.line(text)
        self._behind_run.clear()

    def _length(self, field: Field, type_name: str, path: str) -> str:
        """Read the length of text or bytes, or the count of an array: negative for null."""
        length = self.variable("length")
        if self._version not in field.flexible_versions:
            self.add_to_run("h" if type_name == "string" else "i", length)
            self.end_run()
            return length
        self.end_run()
        self.line(f"{length} = buffer[at] - 1")
        self.line("at += 1")
        with self.block(f"if {length} > 126:"):
            self.line(f"{length}, at = read_varint(buffer, at - 1)")
            self.line(f"{length} = {length} - 1 if {length} > -2**31 else 2**31 - 1")  # as a JVM counts
            if type_name == "string":
                with self.block(f"if {length} > {primitives.MAX_STRING_BYTES}:"):
                    self.line(f"refuse_text({path!r}, at, {length})")
        return length

    def _null(self, target: str, path: str, nullable: bool) -> None:
        self.line(f"{target} = None" if nullable else f"refuse_null({path!r}, at)")

    def _bytes_or_text(self, field: Field, type_name: str, target: str, path: str, nullable: bool) -> None:
        length = self._length(field, type_name, path)
        self.line(f"end = at + {length}")
        with self.block("if at <= end <= size:"):
            self.line(f"{target} = {_CUTS[type_name]}")
            self.line("at = end")
        with self.block(f"elif {length} < 0:"):
            self._null(target, path, nullable)
        with self.block("else:"):
            self.line(f"refuse_length({path!r}, at, {length}, size - at)")

    def _array(self, field: Field, target: str, path: str) -> None:
        count = self._length(field, "array", path)
        keyword = "if"
        if field.element in FIXED and field.element != "uuid":
            with self.block(f"if 0 <= {count} < {SHORT_ARRAY}:"):
                unpackers = self.constant("unpackers", short_arrays(field.element, "unpack_from"))
                self.line(f"{target} = [*{unpackers}[{count}](buffer, at)]")
                self.line(f"at += {count} * {_size_of(field.element)}")
            keyword = "elif"
        with self.block(f"{keyword} {count} < 0:"):
            self._null(target, path, field.is_nullable(self._version))
        with self.block(f"elif {count} * {_size_of(field.element)} > size - at:"):
            self.line(f"refuse_array({path!r}, at, {count}, size - at)")
        with self.block("else:"):
            self._elements(field, target, path, count)

    def _elements(self, field: Field, target: str, path: str, count: str) -> None:
        if field.element in FIXED and field.element != "uuid":
            self.line(f'{target} = list(unpack_from(f">{{{count}}}{FIXED[field.element]}", buffer, at))')
            self.line(f"at += {count} * {_size_of(field.element)}")
            return
        elements, element = self.variable("elements"), self.variable("element")
        self.line(f"{target} = {elements} = []")
        with self.block(f"for _ in range({count}):"):
            if field.struct:
                element = self._struct(field.struct)
            elif field.element == "uuid":
                self._fixed("uuid", element)
            else:
                self._bytes_or_text(field, field.element, element, f"an element of {path}", nullable=False)
            self.end_run()
            self.line(f"{elements}.append({element})")

    def _struct_field(self, field: Field, target: str) -> None:
        assert field.struct
        if not field.is_nullable(self._version):
            value = self._struct(field.struct)
            self.line(f"{target} = {value}")
            return
        presence = self.variable("presence")
        if field.is_tagged(self._version):
            self.line(f"{presence}, at = read_varint(buffer, at)")
            absent = f"{presence} <= 0"
        else:
            self.add_to_run("b", presence)
            absent = f"{presence} < 0"
        with self.block(f"if {absent}:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            value = self._struct(field.struct)
            self.line(f"{target} = {value}")

    def _tags(self, schema: StructSchema, value: str) -> None:
        """Read the tagged fields that end a struct. Most often there are none, which is one byte of zero."""
        self.end_run()
        own = [field for field in schema.fields if field.tag >= 0]
        count = self.variable("tags")
        self.line(f"{count} = buffer[at]")
        self.line("at += 1")
        with self.block(f"if {count}:"):
            self.line(f"{count}, at = read_varint(buffer, at - 1)")
            with self.block(f"for _ in range({count}):"):
                self.line("tag, at = read_varint(buffer, at)")
                self.line("length, at = read_varint(buffer, at)")
                for field in own:
                    with self.block(f"if tag == {field.tag}:"):
                        self._tagged_field(schema, field, f"{value}.{field.attribute}")
                        self.end_run()
                        self.line("continue")
                self.line(f"at = keep_unknown_tag({value}, tag, length, buffer, at, size)")

    def _tagged_field(self, schema: StructSchema, field: Field, target: str) -> None:
        if field.is_tagged(self._version):
            self._field(schema, field, target)
        else:
            self.line(f"refuse_tag(tag, {schema.name!r}, at)")


def _size_of(element: str) -> int:
    """The least size of an element. Kafka counts a byte for those that vary, and no struct of its tables is smaller."""
    return struct.calcsize(FIXED.get(element, "x"))


_CUTS = {
    "string": 'str(buffer[at:end], "utf-8", JAVA_TEXT)',
    "bytes": "bytes(buffer[at:end])",
    "records": "take_records(records_from[at:end])",
}
