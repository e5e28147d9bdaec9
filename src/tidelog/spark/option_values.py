"""The values of options: numbers, sizes, durations, yes and no. What is wrong is said with the option's name."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from tidelog.errors import InvalidRequestError

__all__ = ["OptionValues", "is_long", "parsed_json", "shown"]

_BYTES = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_WITH_UNIT = re.compile(r"(\d+)\s*([a-z]*)", re.IGNORECASE)
_MAX_DIGITS = 18  # of a number that Spark could take, too
_MAX_SHOWN = 200


class OptionValues:
    """Options as they were given; each method reads one of them, by its name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._options

    def text(self, name: str) -> str | None:
        """A text without the space around it; None if there is no such option."""
        value = self._options.get(name.lower())
        return None if value is None else str(value).strip()

    def flag(self, name: str, *, default: bool) -> bool:
        """Yes or no."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise InvalidRequestError(f"{name} is true or false, not {value!r}")
        return value.lower() == "true"

    def word(self, name: str, known: Collection[str], *, default: str) -> str:
        """One of some words, as it is written in the list."""
        value = self.text(name)
        if value is None:
            return default
        for word in known:
            if word.lower() == value.lower():
                return word
        raise InvalidRequestError(f"{name} is {' or '.join(known)}, not {value!r}")

    def positive(self, name: str) -> int | None:
        """A number from 1 on."""
        value = self.text(name)
        if value is None:
            return None
        if not value.isdecimal() or len(value) > _MAX_DIGITS or int(value) < 1:
            raise InvalidRequestError(f"{name} is a number from 1 on, not {shown(value)}")
        return int(value)

    def size(self, name: str, *, default: int) -> int:
        """A number of bytes; k, m and g are powers of 1024."""
        return self._with_unit(name, _BYTES, default, "a size such as 64m or 67108864")

    def duration_ms(self, name: str, *, default: int) -> int:
        """A time span; a number alone is milliseconds, as in Spark."""
        return self._with_unit(name, _MS, default, "a duration such as 200ms, 30s or 15m")

    def _with_unit(self, name: str, units: Mapping[str, int], default: int, example: str) -> int:
        value = self.text(name)
        if value is None:
            return default
        match = _WITH_UNIT.fullmatch(value)
        if match is None or match[2].lower() not in units or len(match[1]) > _MAX_DIGITS or int(match[1]) < 1:
            raise InvalidRequestError(f"{name} is {example}, not {shown(value)}")
        return int(match[1]) * units[match[2].lower()]

    def below(self, prefix: str) -> dict[str, str]:
        """All options whose names begin with a prefix, without it."""
        return {name[len(prefix) :]: value for name, value in self._options.items() if name.startswith(prefix)}


def parsed_json(text: str) -> Any:
    """What a JSON text means; ValueError if it is none, or is nested as deeply as nothing is that means anything."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def is_long(number: object) -> bool:
    """Whether something is a whole number that a file has room for."""
    return isinstance(number, int) and not isinstance(number, bool) and -(2**63) <= number < 2**63


def shown(text: str) -> str:
    """A text in quotes, as long as a sentence can bear."""
    return repr(text) if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]!r} and so on, {len(text)} characters"
