"""`--set NAME=VALUE`, which several commands take for Kafka's configs."""

from collections.abc import Iterable

import click

__all__ = ["settings_of"]


def settings_of(words: Iterable[str]) -> dict[str, str]:
    """The configs that were given, by name. One that is given twice is rejected.

    >>> settings_of(["segment.bytes=5120", "cleanup.policy = compact"])
    {'segment.bytes': '5120', 'cleanup.policy': 'compact'}
    """
    found: dict[str, str] = {}
    for name, value in map(_pair, words):
        if found.setdefault(name, value) != value:
            raise click.BadParameter(f"{name} is given twice, as {found[name]} and {value}", param_hint="--set")
    return found


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in word.partition("="))
    if not equals or not name:
        raise click.BadParameter(f"{word!r} is not NAME=VALUE", param_hint="--set")
    return name, value
