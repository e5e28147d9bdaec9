"""Read checkpoints and `partition.metadata` as Kafka 4.3 does when it starts, to know what a damaged one leads to.

Kafka distinguishes two kinds of damage. A malformed version, count or entry is an error of the disk, which takes the
log directory offline: CheckpointError. A number that cannot be parsed, or that no checkpoint can hold, ends what was
being read: UnreadableNumberError.

Kafka: CheckpointFile and the formatters of its entries, PartitionMetadataReadBuffer.
"""

import re
import uuid
from collections.abc import Sequence

from tidelog.errors import CheckpointError, CorruptionError, InvalidRequestError
from tidelog.fsck.metadata_log import Unstartable
from tidelog.log.files import ReadFileSystem, join
from tidelog.log.names import PARTITION_METADATA, TopicPartition
from tidelog.log.partition_metadata import AFTER_NAME, ZERO_UUID, parse_uuid
from tidelog.log.text_files import read_lines, split_fields, to_number

__all__ = ["UnreadableNumberError", "check_epochs_file", "offsets_by_kafka", "topic_id_by_kafka"]


class UnreadableNumberError(CorruptionError):
    """A number of a checkpoint that cannot be parsed, or that no checkpoint can hold."""


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
    """The entries, each as its fields; `bits` is the size of those that are numbers, None for text."""
    if fs.stat(path) is None:
        directory, _, name = path.rpartition("/")
        if name in fs.list(directory):
            raise CheckpointError(f"{path}: a link that leads nowhere")
        return []
    lines = read_lines(fs, path)
    if not lines:
        return []
    if to_number(lines[0], 32) != 0:
        raise CheckpointError(f"{path}: version {lines[0][:30]!r} of a checkpoint; 0 is known")
    if len(lines) == 1:
        return []
    count = to_number(lines[1], 32)
    if count is None:
        raise CheckpointError(f"{path}: {lines[1][:30]!r} is not a number of entries")
    if count < 0:
        raise UnreadableNumberError(f"{path}: {count} entries")
    entries = [_fields(line, bits, path) for line in lines[2:]]
    if len(entries) != count:
        raise CheckpointError(f"{path}: {len(entries)} entries where {count} are announced")
    return entries


def _fields(line: str, bits: Sequence[int | None], path: str) -> list[str | int]:
    parts = split_fields(line)
    if len(parts) != len(bits):
        raise CheckpointError(f"{path}: {len(parts)} fields where an entry has {len(bits)}: {line[:80]!r}")
    fields: list[str | int] = []
    for part, size in zip(parts, bits, strict=True):
        value = part if size is None else to_number(part, size)
        if value is None:
            raise UnreadableNumberError(f"{path}: {part[:30]!r} is not a number")
        fields.append(value)
    return fields


def topic_id_by_kafka(fs: ReadFileSystem, directory: str) -> uuid.UUID | None:
    """The topic id of a partition directory; None if it has no `partition.metadata`.

    Raises CheckpointError for what takes the log directory offline, and Unstartable for what ends the start.
    """
    path = join(directory, PARTITION_METADATA)
    if fs.stat(path) is None:
        return None
    lines = read_lines(fs, path)
    values = []
    for number in range(2):
        if number == len(lines):
            raise Unstartable(path, f"it ends before line {number + 1}")
        fields = split_fields(lines[number], AFTER_NAME)
        if len(fields) != 2:
            raise CheckpointError(f"{path}: a line is a name, a colon and a value, not {lines[number][:80]!r}")
        values.append(fields[1])
        if number == 0 and not re.fullmatch(r"\+?[0-9]{1,9}", fields[1]):
            raise CheckpointError(f"{path}: version {fields[1][:30]!r}")
    try:
        topic_id = parse_uuid(values[1])
    except InvalidRequestError as error:
        raise Unstartable(path, str(error)) from error
    if topic_id == ZERO_UUID:
        raise CheckpointError(f"{path}: the topic id is zero")
    return topic_id
