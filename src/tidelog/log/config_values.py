"""The values of a config: how text becomes one, which are allowed, and how one becomes text again.

Values are read as Kafka reads them: white space around them does not matter, `TRUE` is true, a number of 32 bits
has no more, a list is separated by commas. What Python would read more kindly (`1_000`, `0x10`, `nan`) is refused.

Kafka: org.apache.kafka.common.config.ConfigDef.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from enum import Enum
from typing import Any, NamedTuple

from tidelog.errors import InvalidConfigError
from tidelog.records.compression import LEVELS, Codec

__all__ = [
    "ANYTHING",
    "Kind",
    "Rule",
    "Setting",
    "at_least",
    "between",
    "check_broker_values",
    "levels_of",
    "one_of",
    "parse_broker_values",
    "setting",
    "settings_of",
    "some_of",
]

_SETTING = "setting"
_WHOLE = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_COMMA = re.compile(r"\s*,\s*")


class Kind(Enum):
    """The types of values. The text is what a refusal says was wanted."""

    INT = "a whole number of 32 bits"
    LONG = "a whole number of 64 bits"
    DOUBLE = "a number"
    BOOLEAN = "true or false"
    STRING = "text"
    LIST = "a list, separated by commas; in Python a tuple"


class Rule(NamedTuple):
    """Which values of the right type are allowed, and how to say so."""

    allows: Callable[[Any], bool]
    wanted: str


ANYTHING = Rule(lambda value: True, "anything")


def at_least(lowest: int) -> Rule:
    return Rule(lambda value: value >= lowest, f"{lowest} or more")


def between(lowest: float, highest: float) -> Rule:
    return Rule(lambda value: lowest <= value <= highest, f"{lowest} to {highest}")


def one_of(*words: str) -> Rule:
    return Rule(lambda value: value in words, f"one of {', '.join(words)}")


def some_of(*words: str) -> Rule:
    """None, one or several of the words, each once."""
    return Rule(
        lambda items: set(items) <= set(words) and len(set(items)) == len(items),
        f"any of {', '.join(words)}, each once",
    )


def levels_of(codec: Codec) -> Rule:
    levels = LEVELS[codec]
    return Rule(levels.allows, f"{levels.lowest} to {levels.highest}, the default is {levels.default}")


class Setting(NamedTuple):
    """What is known about one config beside its name."""

    kind: Kind
    rule: Rule = ANYTHING
    broker_names: tuple[str, ...] = ()  # which set the default for all topics of a broker; the first that is set wins

    def parse(self, name: str, value: object) -> Any:
        """The value that `value`, text or already of the type, stands for."""
        if isinstance(value, str):
            parsed = _parse_text(self.kind, value.strip())
        elif self.kind is Kind.LIST and isinstance(value, list):
            parsed = tuple(value)
        else:
            parsed = value
        self.check(name, value if parsed is None else parsed)
        return parsed

    def check(self, name: str, value: object) -> None:
        """Raise InvalidConfigError unless `value` has the type and obeys the rule."""
        if not _is_of(self.kind, value):
            raise InvalidConfigError(f"{name} is {value!r}, wanted is {self.kind.value}")
        if not self.rule.allows(value):
            raise InvalidConfigError(f"{name} is {self.to_text(value)!r}, wanted is {self.rule.wanted}")

    def to_text(self, value: Any) -> str:
        """The text that Kafka's tools show for `value`, and that reads back as the same."""
        if self.kind is Kind.BOOLEAN:
            return "true" if value else "false"
        if self.kind is Kind.LIST:
            return ",".join(value)
        return str(value)


def setting(default: object, kind: Kind, rule: Rule = ANYTHING, *broker_names: str) -> Any:
    """A field of a dataclass that is a config."""
    return field(default=default, metadata={_SETTING: Setting(kind, rule, broker_names)})


def settings_of(config: type[Any]) -> Mapping[str, Setting]:
    """The settings of a dataclass, by the names of its fields."""
    return {item.name: item.metadata[_SETTING] for item in fields(config) if _SETTING in item.metadata}


def check_broker_values(config: Any) -> None:
    """Raise InvalidConfigError for a value of a broker's config that Kafka refuses."""
    for name, known in settings_of(type(config)).items():
        known.check(known.broker_names[0], getattr(config, name))


def parse_broker_values(config: type[Any], properties: Mapping[str, object]) -> dict[str, Any]:
    """What a broker's properties say of the fields of a config. Names of anything else are passed over."""
    named = {name: (known, known.broker_names[0]) for name, known in settings_of(config).items()}
    return {
        name: known.parse(broker_name, properties[broker_name])
        for name, (known, broker_name) in named.items()
        if properties.get(broker_name) is not None
    }


def _parse_text(kind: Kind, text: str) -> Any:
    """The value, or None where the text is of another type."""
    if kind is Kind.INT or kind is Kind.LONG:
        return int(text) if _WHOLE.fullmatch(text) and len(text) < 40 else None
    if kind is Kind.DOUBLE:
        return float(text) if _DECIMAL.fullmatch(text) else None
    if kind is Kind.BOOLEAN:
        return {"true": True, "false": False}.get(text.lower())
    if kind is Kind.LIST:
        return tuple(_COMMA.split(text)) if text else ()
    return text


def _is_of(kind: Kind, value: object) -> bool:
    if kind is Kind.BOOLEAN:
        return isinstance(value, bool)
    if kind is Kind.STRING:
        return isinstance(value, str)
    if kind is Kind.LIST:
        return isinstance(value, tuple) and all(isinstance(item, str) for item in value)
    if isinstance(value, bool):  # which Python takes for a number
        return False
    if kind is Kind.DOUBLE:
        return isinstance(value, float | int)
    bits = 31 if kind is Kind.INT else 63
    return isinstance(value, int) and -(2**bits) <= value < 2**bits
