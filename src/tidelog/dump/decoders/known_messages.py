"""The messages of internal topics as a release of the tool knew them.

The newest are those of `tidelog.protocol`. Where an earlier release knew a message in another form, or not at all,
`older_messages.jsonl` has it; see `generate` for what its lines mean.
"""

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Literal, NamedTuple

from tidelog import protocol
from tidelog.dump.releases import Release, Version
from tidelog.errors import UnsupportedError
from tidelog.protocol import MessageType
from tidelog.protocol.schema import message_schema

__all__ = ["coordinator_record", "known_coordinator_record", "metadata_record", "remote_log_record"]

_NEWEST_GROUP_TYPE_OF_3 = 8  # 3.9 has tables of share groups, but its tool does not know their types
_OFFSET_COMMIT_TYPES = (0, 1)
_REMOTE_LOG_RECORDS = (
    "RemoteLogSegmentMetadataRecord",
    "RemoteLogSegmentMetadataUpdateRecord",
    "RemotePartitionDeleteMetadataRecord",
    "RemoteLogSegmentMetadataSnapshotRecord",
)


class _Form(NamedTuple):
    """What a message was up to a release; no message type where it was not there yet."""

    until: Version
    message: MessageType | None


def metadata_record(api_key: int, release: Release) -> MessageType | None:
    """The record of the metadata log with that key, if the release knows one."""
    older = _older_form("metadata", "metadata", api_key, release)
    if older:
        return older.message
    try:
        return protocol.metadata_record(api_key)
    except UnsupportedError:
        return None


def remote_log_record(api_key: int, release: Release) -> MessageType | None:
    """The record of remote log metadata with that key, if there is one."""
    older = _older_form("storage", "metadata", api_key, release)
    if older:
        return older.message
    return protocol.message(_REMOTE_LOG_RECORDS[api_key]) if 0 <= api_key < len(_REMOTE_LOG_RECORDS) else None


def coordinator_record(family: str, record_type: int, release: Release) -> tuple[MessageType, MessageType] | None:
    """Key and value of a coordinator's record, by the type its key begins with, if the release knows it.

    The families are "group", "share" and "transaction".
    """
    if family == "group" and not release.is_at_least(4, 1):
        if record_type in _OFFSET_COMMIT_TYPES:
            record_type = 1  # the value of type 0 could have any version
        elif record_type > _NEWEST_GROUP_TYPE_OF_3 and not release.is_at_least(4, 0):
            return None
    key = _coordinator_message(family, "key", record_type, release)
    value = _coordinator_message(family, "value", record_type, release)
    return (key, value) if key and value else None


def known_coordinator_record(family: str, record_type: int, release: Release) -> tuple[MessageType, MessageType]:
    """The same for a type that every release knows."""
    messages = coordinator_record(family, record_type, release)
    assert messages is not None, f"{family} {record_type}"
    return messages


def _coordinator_message(
    family: str, part: Literal["key", "value"], record_type: int, release: Release
) -> MessageType | None:
    older = _older_form(f"{family}-coordinator", f"coordinator-{part}", record_type, release)
    if older:
        return older.message
    try:
        key, value = protocol.coordinator_record(family, record_type)
    except UnsupportedError:
        return None
    return key if part == "key" else value


def _older_form(module: str, kind: str, api_key: int, release: Release) -> _Form | None:
    """The form in which the release knew a message, unless it was the newest."""
    forms = _older_forms().get((module, kind, api_key), ())
    return next((form for form in forms if release.version[:2] <= form.until), None)


@functools.cache
def _older_forms() -> Mapping[tuple[str, str, int], tuple[_Form, ...]]:
    text = resources.files("tidelog.dump.decoders").joinpath("older_messages.jsonl").read_text(encoding="utf-8")
    forms: dict[tuple[str, str, int], list[_Form]] = {}
    for table in map(json.loads, text.splitlines()):
        until = tuple(map(int, table["until"].split(".")))
        message = None if table["fields"] is None else MessageType(message_schema(table))
        forms.setdefault((table["module"], table["type"], table["apiKey"]), []).append(_Form(until, message))
    return {key: tuple(sorted(found, key=_age)) for key, found in forms.items()}


def _age(form: _Form) -> tuple[Version, bool]:
    """One key can have been that of two messages: before the later was there, it is the earlier that counts."""
    return form.until, form.message is None
