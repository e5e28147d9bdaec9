"""The text of a producer snapshot, `<offset>.snapshot`: one line per producer."""

import struct

from tidelog.dump.java_errors import JavaError, illegal_argument
from tidelog.dump.java_files import read_file
from tidelog.dump.java_text import JavaFile
from tidelog.dump.output import Output
from tidelog.dump.releases import Release
from tidelog.records.checksum import crc32c_of
from tidelog.records.java import MAX_INT32, wrap_int32

__all__ = ["dump_snapshot"]

_PREFIX = struct.Struct(">hI")  # version, crc of what follows
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_KNOWN_VERSION = 1
_SCHEMA_ERROR = "Snapshot failed schema validation: "
_UNKNOWN_VERSION = "Snapshot contained an unknown file version "

# The fields of the schema: their names, and how many bytes they take.
_ENTRY_FIELDS = (
    ("producer_id", 8),
    ("epoch", 2),
    ("last_sequence", 4),
    ("last_offset", 8),
    ("offset_delta", 4),
    ("timestamp", 8),
    ("coordinator_epoch", 4),
    ("current_txn_first_offset", 8),
)


class _CorruptSnapshot(Exception):
    """What the tool says about a snapshot that it cannot read; it then goes on with the next file."""


def dump_snapshot(file: JavaFile, release: Release, out: Output, err: Output) -> None:
    """Write the entries of a snapshot, or one line on standard error."""
    data = read_file(file)
    try:
        entries = _entries(data, release)
    except _CorruptSnapshot as error:
        out.flush()
        err.write(f"{_old_words(error, file, release)}\n")
        return
    for entry in entries:
        out.write(_line(entry, release))


def _old_words(error: _CorruptSnapshot, file: JavaFile, release: Release) -> str:
    """0.11.0.0 names the file of a wrong checksum, and ends with an exception at everything else."""
    text = str(error)
    if release.snapshot_errors == "lines":
        return text
    if text.startswith(_SCHEMA_ERROR):
        message = text.removeprefix(_SCHEMA_ERROR)
        raise JavaError("org.apache.kafka.common.protocol.types.SchemaException", message)
    if text.startswith(_UNKNOWN_VERSION):
        version = text.removeprefix(_UNKNOWN_VERSION)
        raise illegal_argument(f"Unhandled snapshot file version {version}")
    return text.replace("Snapshot is corrupt", f"Snapshot file '{file.path}' is corrupted")


def _entries(data: bytes, release: Release) -> list[tuple[int, ...]]:
    read = _read_message if release.snapshot_schema == "message" else _read_struct
    version, stored, count = read(data)
    if version != _KNOWN_VERSION:
        raise _CorruptSnapshot(f"{_UNKNOWN_VERSION}{version}")
    computed = crc32c_of(memoryview(data)[_PREFIX.size :])
    if stored != computed:
        raise _CorruptSnapshot(
            f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. Computed crc: {computed}"
        )
    start = _PREFIX.size + _COUNT.size
    return list(_ENTRY.iter_unpack(data[start : start + count * _ENTRY.size]))


def _read_struct(data: bytes) -> tuple[int, int, int]:
    """Version, checksum and count, with the complaints of Kafka's old schemas. The version is looked at last."""
    for name, end in (("version", 2), ("crc", 6)):
        if len(data) < end:
            raise _schema_error(f"Error reading field '{name}': java.nio.BufferUnderflowException")
    version, crc = _PREFIX.unpack_from(data)
    if len(data) < _PREFIX.size + _COUNT.size:
        raise _schema_error("Error reading field 'producer_entries': java.nio.BufferUnderflowException")
    (count,) = _COUNT.unpack_from(data, _PREFIX.size)
    left = len(data) - _PREFIX.size - _COUNT.size
    if count < 0:
        raise _schema_error(f"Error reading field 'producer_entries': Array size {count} cannot be negative")
    if count > left:
        raise _schema_error(
            f"Error reading field 'producer_entries': Error reading array of size {count}, only {left} bytes available"
        )
    if count * _ENTRY.size > left:
        raise _schema_error(
            f"Error reading field 'producer_entries': Error reading field '{_torn_field(left)}': "
            "java.nio.BufferUnderflowException"
        )
    return version, crc, count


def _torn_field(left: int) -> str:
    """The field of an entry in which the bytes end."""
    left %= _ENTRY.size
    for name, size in _ENTRY_FIELDS:
        if left < size:
            return name
        left -= size
    raise AssertionError("an entry that is whole")


def _read_message(data: bytes) -> tuple[int, int, int]:
    """The same by the generated reader of 4.0, which looks at the version first."""
    if len(data) < 2:
        raise _schema_error("null")
    (version,) = struct.unpack_from(">h", data)
    if version != _KNOWN_VERSION:
        raise _schema_error(f"{_UNKNOWN_VERSION}{version}")
    if len(data) < _PREFIX.size + _COUNT.size:
        raise _schema_error("null")
    _, crc = _PREFIX.unpack_from(data)
    (count,) = _COUNT.unpack_from(data, _PREFIX.size)
    left = len(data) - _PREFIX.size - _COUNT.size
    if count < 0:
        raise _schema_error("non-nullable field producerEntries was serialized as null")
    if count > left:
        raise _schema_error(
            f"Tried to allocate a collection of size {count}, but there are only {left} bytes remaining."
        )
    if count * _ENTRY.size > left:
        raise _schema_error("null")
    return version, crc, count


def _schema_error(message: str) -> _CorruptSnapshot:
    return _CorruptSnapshot(f"{_SCHEMA_ERROR}{message}")


def _line(entry: tuple[int, ...], release: Release) -> str:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_offset = entry
    first_offset = _optional(txn_offset, release)
    if release.snapshot_line == "0.11":
        return (
            f"producerId: {producer_id} producerEpoch: {epoch} lastSequence: {sequence} lastOffset: {offset} "
            f"offsetDelta: {delta} lastTimestamp: {timestamp} coordinatorEpoch: {coordinator_epoch} "
            f"currentTxnFirstOffset: {first_offset}\n"
        )
    start = (
        f"producerId: {producer_id} producerEpoch: {epoch} coordinatorEpoch: {coordinator_epoch} "
        f"currentTxnFirstOffset: {first_offset} "
    )
    first_sequence = _first_sequence(sequence, delta, release)
    if release.snapshot_line == "queue":
        batch = (
            f"BatchMetadata(firstSeq={first_sequence}, lastSeq={sequence}, firstOffset={offset - delta}, "
            f"lastOffset={offset}, timestamp={timestamp})"
        )
        return f"{start}cachedMetadata: Queue({batch})\n"
    if release.snapshot_timestamp:
        start += f"lastTimestamp: {timestamp} "
    if offset < 0 and not release.snapshot_always_has_batch:
        return (start if release.snapshot_trailing_space else start.rstrip()) + "\n"
    return (
        f"{start}firstSequence: {first_sequence} lastSequence: {sequence} lastOffset: {offset} "
        f"offsetDelta: {delta} timestamp: {timestamp}\n"
    )


def _first_sequence(last: int, delta: int, release: Release) -> int:
    """Sequences count from 0 again behind 2^31 - 1; old tools do not know."""
    if release.first_sequence_wraps and last < delta:
        return wrap_int32(MAX_INT32 - wrap_int32(delta - last) + 1)
    return wrap_int32(last - delta)


def _optional(offset: int, release: Release) -> str:
    if release.snapshot_options == "java":
        return f"OptionalLong[{offset}]" if offset >= 0 else "OptionalLong.empty"
    return f"Some({offset})" if offset >= 0 else "None"
