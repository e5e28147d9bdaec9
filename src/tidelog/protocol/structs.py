"""Structs: what a reader gives and a writer takes, a small class for each struct of the tables.

Attributes are the fields, in snake_case; what is not given has the default of the schema. A struct can be changed;
equal structs are of one class and have equal fields and equal unknown tags. `unknown_tags` are tagged fields that the
tables do not know, as a newer client may send them: they are kept and written back.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from tidelog.errors import InvalidRequestError

__all__ = ["Struct", "struct_class"]


class Struct:
    """The base of every struct. Keyword arguments are fields; structs inside may be given as mappings."""

    __slots__ = ("unknown_tags",)

    field_defaults: ClassVar[Mapping[str, Callable[[], Any]]] = {}
    field_structs: ClassVar[Mapping[str, type["Struct"]]] = {}

    unknown_tags: dict[int, bytes]

    def __init__(self, **fields: Any) -> None:
        for name, new_default in self.field_defaults.items():
            setattr(self, name, self._given(name, fields.pop(name)) if name in fields else new_default())
        self.unknown_tags = fields.pop("unknown_tags", {})
        if fields:
            known = ", ".join(self.field_defaults) or "none"
            raise InvalidRequestError(f"{type(self).__name__} has no field {next(iter(fields))!r}; it has {known}")

    def _given(self, name: str, value: Any) -> Any:
        inner = self.field_structs.get(name)
        if inner is None:
            return value
        if isinstance(value, list | tuple):
            return [inner(**element) if isinstance(element, Mapping) else element for element in value]
        return inner(**value) if isinstance(value, Mapping) else value

    def __getattr__(self, name: str) -> Any:
        # Only for names that are no fields: the fields are slots. It also tells a type checker that there are some.
        raise AttributeError(f"{type(self).__name__} has no field {name!r}")

    def _values(self) -> Iterator[Any]:
        return (getattr(self, name) for name in self.field_defaults)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(a == b for a, b in zip(self._values(), other._values(), strict=True)) and (
            self.unknown_tags == other.unknown_tags
        )

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        shown = [f"{name}={value!r}" for name, value in zip(self.field_defaults, self._values(), strict=True)]
        if self.unknown_tags:
            shown.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


def struct_class(
    name: str, defaults: Mapping[str, Callable[[], Any]], structs: Mapping[str, type[Struct]]
) -> type[Struct]:
    """A class with a slot for every field: `defaults` make their values, `structs` are the classes of those inside."""
    return type(name, (Struct,), {"__slots__": tuple(defaults), "field_defaults": defaults, "field_structs": structs})
