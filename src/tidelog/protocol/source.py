"""Python source under construction: lines, blocks, and runs of numbers that one call packs or unpacks.

Readers and writers of messages are made as source and compiled on first use, one function per message and version.
Fields of fixed size that follow each other are gathered and handled by one precompiled `struct.Struct`: that, and the
absence of calls between structs, is what makes them fast.
"""

import functools
import struct
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from tidelog.protocol.schema import ZERO_UUID, Field

__all__ = ["FIXED", "SHORT_ARRAY", "Source", "short_arrays"]

# Fields of fixed size, as the struct module spells them.
FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}

SHORT_ARRAY = 32  # arrays below that size have a layout in stock: replicas, partitions


@functools.cache
def short_arrays(element: str, method: Literal["pack", "unpack_from"]) -> tuple[Callable[..., Any], ...]:
    """How to pack or unpack none, one, two … elements of an array of numbers."""
    return tuple(getattr(struct.Struct(f">{count}{FIXED[element]}"), method) for count in range(SHORT_ARRAY))


class Source:
    """The lines of one function, and the names that they use."""

    def __init__(self, name: str, names: dict[str, Any]) -> None:
        self._name = name
        self._names = {"ZERO_UUID": ZERO_UUID, **names}
        self._lines: list[str] = []
        self._depth = 0
        self._variables = 0
        self._run: list[tuple[str, str]] = []  # a format and a target, or an expression

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """The lines below `header`. No run reaches over the border of a block."""
        self.end_run()
        self.line(header)
        self._depth += 1
        yield
        self.end_run()
        self._depth -= 1

    def variable(self, stem: str) -> str:
        """A name that is not yet in use."""
        self._variables += 1
        return f"{stem}{self._variables}"

    def constant(self, stem: str, value: Any) -> str:
        """A name for a value."""
        name = self.variable(stem.upper())
        self._names[name] = value
        return name

    def add_to_run(self, format: str, expression: str) -> None:
        self._run.append((format, expression))

    def end_run(self) -> None:
        """Handle what was gathered."""
        if self._run:
            run, self._run = self._run, []
            layout = struct.Struct(">" + "".join(format for format, _ in run))
            self.handle_run(layout, [expression for _, expression in run])

    def handle_run(self, layout: struct.Struct, expressions: list[str]) -> None:
        raise NotImplementedError

    def default(self, field: Field) -> str:
        """An expression for the default of a field that is no struct."""
        value = field.default
        if value is list:
            return "[]"
        if isinstance(value, uuid.UUID):
            return "ZERO_UUID" if value == ZERO_UUID else self.constant("uuid", value)
        return repr(value)

    def compile(self) -> Callable[..., Any]:
        """The function. A traceback calls its file `<reader of …>`."""
        exec(compile("\n".join(self._lines), f"<{self._name}>", "exec"), self._names)
        function: Callable[..., Any] = self._names["function"]
        return function
