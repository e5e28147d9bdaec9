"""Which message is meant: by its name, by the key of its API, or by the type at the head of a record.

The tables are read on first use, a message is built when it is first asked for.
"""

import difflib
import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from tidelog.errors import UnsupportedError
from tidelog.protocol.message_type import MessageType
from tidelog.protocol.schema import message_schema

__all__ = [
    "api_keys",
    "coordinator_record",
    "message",
    "message_names",
    "metadata_record",
    "request",
    "response",
]

_FAMILIES = {
    "group": "group-coordinator",
    "share": "share-coordinator",
    "transaction": "transaction-coordinator",
}


def message(name: str) -> MessageType:
    """The message of that name, "OffsetCommitValue" for example."""
    if name not in _tables():
        near = difflib.get_close_matches(name, _tables(), n=1, cutoff=0.0)
        raise UnsupportedError(f"no message is called {name!r}; the nearest name is {near[0]!r}")
    return _message(name)


def message_names() -> tuple[str, ...]:
    """The name of every message, ordered by module and name."""
    return tuple(_tables())


def request(api_key: int) -> MessageType:
    """The request of an API."""
    return _by_key("clients", "request", api_key, f"no API has the key {api_key}")


def response(api_key: int) -> MessageType:
    """The answer of an API."""
    return _by_key("clients", "response", api_key, f"no API has the key {api_key}")


def api_keys() -> tuple[int, ...]:
    """The key of every API, those that Kafka 4 removed too."""
    return tuple(sorted(key for module, kind, key in _names_by_key() if (module, kind) == ("clients", "request")))


def metadata_record(api_key: int) -> MessageType:
    """The record of the metadata log with that key."""
    return _by_key("metadata", "metadata", api_key, f"no record of the metadata log has the key {api_key}")


def coordinator_record(family: str, record_type: int) -> tuple[MessageType, MessageType | None]:
    """Key and value of a record that a coordinator keeps; its type is the 16-bit number a key begins with.

    The families are "group", "share" and "transaction". Behind the type, a key has version 0. Where Kafka's tables
    have a key and no value, the value is None.
    """
    if family not in _FAMILIES:
        raise UnsupportedError(f"no coordinator {family!r}; there are {', '.join(_FAMILIES)}")
    module = _FAMILIES[family]
    key = _by_key(module, "coordinator-key", record_type, f"the {family} coordinator has no record type {record_type}")
    value = _names_by_key().get((module, "coordinator-value", record_type))
    return key, None if value is None else _message(value)


def _by_key(module: str, kind: str, key: int, reproach: str) -> MessageType:
    name = _names_by_key().get((module, kind, key))
    if name is None:
        raise UnsupportedError(f"{reproach} in Kafka 4.3")
    return _message(name)


@functools.cache
def _tables() -> Mapping[str, Mapping[str, Any]]:
    text = resources.files("tidelog.protocol").joinpath("messages.jsonl").read_text(encoding="utf-8")
    return {table["name"]: table for table in map(json.loads, text.splitlines())}


@functools.cache
def _names_by_key() -> Mapping[tuple[str, str, int], str]:
    return {
        (table["module"], table["type"], table["apiKey"]): name
        for name, table in _tables().items()
        if "apiKey" in table
    }


@functools.cache
def _message(name: str) -> MessageType:
    return MessageType(message_schema(_tables()[name]))
