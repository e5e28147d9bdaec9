"""Writers: a function that turns structs into bytes, made for one message in one version.

    function(value, put)        `put` is given the bytes piece by piece

A writer trusts its values: one of the wrong type or out of range raises AttributeError, TypeError or struct.error
somewhere inside, and `misfit` then looks for the field to blame. A null where the version has none is such a value.
Any value but the default in a field that the version does not have is refused, unless the tables call the field
ignorable: so does Kafka.
"""

import struct
from collections.abc import Callable
from typing import Any

from tidelog.protocol import primitives
from tidelog.protocol.schema import Field, MessageSchema, StructSchema
from tidelog.protocol.source import FIXED, SHORT_ARRAY, Source, short_arrays

__all__ = ["compile_writer"]


def _text_length(length_and_one: int) -> bytes:
    if length_and_one > primitives.MAX_STRING_BYTES + 1:
        raise ValueError(f"text of {length_and_one - 1} bytes; at most {primitives.MAX_STRING_BYTES} are possible")
    return primitives.varint(length_and_one)


_NAMES = {
    "SMALL_VARINTS": primitives.SMALL_VARINTS,
    "octets": primitives.octets,
    "pack": struct.pack,
    "refuse_tags": primitives.refuse_tags,
    "refuse_value": primitives.refuse_value,
    "tag_section": primitives.tag_section,
    "text_length": _text_length,
    "varint": primitives.varint,
}


def compile_writer(schema: MessageSchema, version: int) -> Callable[..., Any]:
    """The writer of a message in one version."""
    return _WriterSource(schema, version).compile()


class _WriterSource(Source):
    def __init__(self, schema: MessageSchema, version: int) -> None:
        super().__init__(f"writer of {schema.name} version {version}", _NAMES)
        self._version = version
        self._is_flexible = version in schema.flexible_versions
        self._put = "put"
        with self.block("def function(value, put):"):
            self._struct(schema.struct, "value")

    def handle_run(self, layout: struct.Struct, expressions: list[str]) -> None:
        self.line(f"{self._put}({self.constant('pack', layout.pack)}({', '.join(expressions)}))")

    def _struct(self, schema: StructSchema, value: str) -> None:
        for field in schema.fields:
            source = f"{value}.{field.attribute}"
            if self._version not in field.versions:
                if not field.ignorable:
                    with self.block(f"if {self._is_set(field, source)}:"):
                        self.line(f"refuse_value({_path(schema, field)!r})")
            elif not field.is_tagged(self._version):
                self._field(schema, field, source)
        if self._is_flexible:
            self._tags(schema, value)
        else:
            with self.block(f"if {value}.unknown_tags:"):
                self.line(f"refuse_tags({schema.name!r})")

    def _is_set(self, field: Field, source: str) -> str:
        """An expression: whether a field has another value than its default."""
        if field.default is None:
            return f"{source} is not None"
        if field.type in ("array", "bytes"):
            return f"{source} is None or len({source})"
        if field.type == "struct":
            return f"{source} != {self.constant('default', field.new_default())}"
        return f"{source} != {self.default(field)}"

    def _field(self, schema: StructSchema, field: Field, source: str) -> None:
        if field.type in FIXED:
            self._fixed(field.type, source)
            return
        value = self.variable("value")
        self.line(f"{value} = {source}")
        if field.is_nullable(self._version):
            with self.block(f"if {value} is None:"):
                self._null(field)
            with self.block("else:"):
                self._present(schema, field, value)
        else:
            self._present(schema, field, value)

    def _fixed(self, type_name: str, source: str) -> None:
        self.add_to_run(FIXED[type_name], source + ".bytes" if type_name == "uuid" else source)

    def _null(self, field: Field) -> None:
        if field.type == "struct" and not field.is_tagged(self._version):
            self.add_to_run("b", "-1")
        elif self._version in field.flexible_versions:
            self.add_to_run("b", "0")
        else:
            self.add_to_run("h" if field.type == "string" else "i", "-1")

    def _present(self, schema: StructSchema, field: Field, value: str) -> None:
        if field.struct and field.type == "struct":
            if field.is_nullable(self._version):
                self.add_to_run("b", "1")
            self._struct(field.struct, value)
        elif field.type == "array":
            self._array(schema, field, value)
        else:
            self._bytes_or_text(field, field.type, value)

    def _bytes_or_text(self, field: Field, type_name: str, value: str) -> None:
        if type_name == "string":
            self.line(f"{value} = {value}.encode()")
        else:
            with self.block(f"if type({value}) is not bytes:"):
                self.line(f"{value} = octets({value})")
        self._length(field, type_name, value)
        self.end_run()
        self.line(f"{self._put}({value})")

    def _length(self, field: Field, type_name: str, value: str) -> None:
        if self._version not in field.flexible_versions:
            self.add_to_run("h" if type_name == "string" else "i", f"len({value})")
            return
        self.end_run()
        long_form = "text_length" if type_name == "string" else "varint"
        self.line(f"length = len({value}) + 1")
        self.line(f"{self._put}(SMALL_VARINTS[length] if length < 128 else {long_form}(length))")

    def _array(self, schema: StructSchema, field: Field, value: str) -> None:
        self._length(field, "array", value)
        self.end_run()
        if field.element in FIXED and field.element != "uuid":
            packers = self.constant("packers", short_arrays(field.element, "pack"))
            with self.block(f"if len({value}) < {SHORT_ARRAY}:"):
                self.line(f"{self._put}({packers}[len({value})](*{value}))")
            with self.block("else:"):
                self.line(f'{self._put}(pack(f">{{len({value})}}{FIXED[field.element]}", *{value}))')
            return
        element = self.variable("element")
        with self.block(f"for {element} in {value}:"):
            if field.struct:
                self._struct(field.struct, element)
            elif field.element == "uuid":
                self._fixed("uuid", element)
            else:
                self._bytes_or_text(field, field.element, element)

    def _tags(self, schema: StructSchema, value: str) -> None:
        """Write the tagged fields that end a struct: those that are not at their default, and unknown ones."""
        self.end_run()
        own = [field for field in schema.fields if self._version in field.tagged_versions]
        known = self.variable("known") if own else "None"
        if own:
            self.line(f"{known} = {{}}")
        for field in sorted(own, key=lambda field: field.tag):
            with self.block(f"if {self._is_set(field, f'{value}.{field.attribute}')}:"):
                self._tag(schema, field, value, known)
        defined = sum(field.tag >= 0 for field in schema.fields)
        with self.block(f"if {known} or {value}.unknown_tags:" if own else f"if {value}.unknown_tags:"):
            self.line(f"{self._put}(tag_section({schema.name!r}, {known}, {value}.unknown_tags, {defined}))")
        with self.block("else:"):
            self.line(f"{self._put}(b'\\0')")

    def _tag(self, schema: StructSchema, field: Field, value: str, known: str) -> None:
        outer, self._put = self._put, self.variable("put")
        parts = self.variable("parts")
        self.line(f"{parts} = []")
        self.line(f"{self._put} = {parts}.append")
        self._field(schema, field, f"{value}.{field.attribute}")
        self.end_run()
        self.line(f"{known}[{field.tag}] = b''.join({parts})")
        self._put = outer


def _path(schema: StructSchema, field: Field) -> str:
    return f"{field.name} of {schema.name}"
