"""Checkpoints as Kafka 4.3 reads them when it starts, which tells two kinds of damage apart.

A version, a count or an entry of the wrong form is an error of the disk to it: CheckpointError here. A number inside an
entry that is none, or that nobody would write, ends whatever was reading: UnreadableNumberError.

Kafka: CheckpointFile, and the formatters of its entries.
"""

import re
from collections.abc import Sequence

from tidelog.errors import CheckpointError, CorruptionError
from tidelog.log.files import ReadFileSystem, read_whole
from tidelog.log.names import TopicPartition

__all__ = ["UnreadableNumberError", "check_epochs_file", "offsets_by_kafka"]

_LINE_END = re.compile(r"\r\n|\r|\n")
_WHITE_SPACE = re.compile(r"\s+", re.ASCII)
_NUMBER = re.compile(r"[+-]?[0-9]{1,255}")


class UnreadableNumberError(CorruptionError):
    """A number of a checkpoint that cannot be read, or cannot be."""


def offsets_by_kafka(fs: ReadFileSystem, path: str) -> dict[TopicPartition, int]:
    """The entries of an offset checkpoint."""
    found = {}
    for topic, partition, offset in _entries(fs, path, (None, 32, 64)):
        assert isinstance(topic, str)
        found[TopicPartition(topic, int(partition))] = int(offset)
    return found


def check_epochs_file(fs: ReadFileSystem, path: str) -> None:
    """Raise if Kafka cannot read a leader epoch checkpoint."""
    for epoch, start_offset in _entries(fs, path, (32, 64)):
        if int(epoch) < 0 or int(start_offset) < 0:
            raise UnreadableNumberError(f"{path}: epoch {epoch} from offset {start_offset} on")


def _entries(fs: ReadFileSystem, path: str, bits: Sequence[int | None]) -> list[list[str | int]]:
    """The entries, each cut into its fields; `bits` says which of them are numbers, and how large."""
    if fs.stat(path) is None:
        return []
    try:
        lines = _LINE_END.split(read_whole(fs, path).decode())
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not UTF-8 at position {error.start}") from error
    if not lines[-1]:
        lines.pop()
    if not lines:
        return []
    if _number(lines[0], 32) != 0:
        raise CheckpointError(f"{path}: version {lines[0][:30]!r} of a checkpoint; 0 is known")
    if len(lines) == 1:
        return []
    count = _number(lines[1], 32)
    if count is None:
        raise CheckpointError(f"{path}: {lines[1][:30]!r} is no number of entries")
    if count < 0:
        raise UnreadableNumberError(f"{path}: {count} entries")
    entries = [_fields(line, bits, path) for line in lines[2:]]
    if len(entries) != count:
        raise CheckpointError(f"{path}: {len(entries)} entries where {count} are announced")
    return entries


def _fields(line: str, bits: Sequence[int | None], path: str) -> list[str | int]:
    parts = _WHITE_SPACE.split(line)
    if not parts[-1]:
        parts.pop()  # Java's split leaves it out
    if len(parts) != len(bits):
        raise CheckpointError(f"{path}: {len(parts)} fields where an entry has {len(bits)}: {line[:80]!r}")
    fields: list[str | int] = []
    for part, size in zip(parts, bits, strict=True):
        value = part if size is None else _number(part, size)
        if value is None:
            raise UnreadableNumberError(f"{path}: {part[:30]!r} is no number")
        fields.append(value)
    return fields


def _number(text: str, bits: int) -> int | None:
    value = int(text) if _NUMBER.fullmatch(text) else None
    return value if value is not None and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None
