"""Producer snapshots: `<offset>.snapshot`, the state of all producers just before an offset.

    file  := version (i16, 1)  crc (u32, CRC-32C of all that follows)  count (i32)  entry*
    entry := producer_id (i64)  epoch (i16)  last_sequence (i32)  last_offset (i64)  offset_delta (i32)
             timestamp (i64)  coordinator_epoch (i32)  txn_first_offset (i64)          46 bytes

Of the batches of a producer only the newest is kept; without one last_sequence and last_offset are -1 and the delta
is 0. txn_first_offset is -1 where no transaction is open. The timestamp is that of the newest batch or marker. Entries
come in the order of Kafka's hash map (`java_map`); readers take any.

Kafka: ProducerStateManager.readSnapshot and writeSnapshot, ProducerSnapshot.json.
"""

import struct
from collections.abc import Iterable

from tidelog.errors import CorruptIndexError
from tidelog.log.files import FileSystem
from tidelog.log.producer_entry import BatchMetadata, ProducerEntry
from tidelog.records.checksum import crc32c_of
from tidelog.records.fields import pack

__all__ = ["SNAPSHOT_VERSION", "build_snapshot", "parse_snapshot", "write_snapshot"]

SNAPSHOT_VERSION = 1

_PREFIX = struct.Struct(">hI")  # version, crc
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_HEADER_SIZE = _PREFIX.size + _COUNT.size


def parse_snapshot(data: bytes) -> list[ProducerEntry]:
    """The entries of a snapshot, in its order. Raises CorruptIndexError.

    >>> parse_snapshot(bytes.fromhex("0001 48674bc7 00000000"))
    []
    """
    if len(data) < _HEADER_SIZE:
        raise CorruptIndexError(f"a producer snapshot of {len(data)} bytes, its header takes {_HEADER_SIZE}")
    version, crc = _PREFIX.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptIndexError(f"a producer snapshot of version {version}, known is {SNAPSHOT_VERSION}")
    (count,) = _COUNT.unpack_from(data, _PREFIX.size)
    room = (len(data) - _HEADER_SIZE) // _ENTRY.size
    if not 0 <= count <= room:
        raise CorruptIndexError(f"a producer snapshot that promises {count} entries, there is room for {room}")
    computed = crc32c_of(memoryview(data)[_PREFIX.size :])
    if crc != computed:
        raise CorruptIndexError(f"a producer snapshot says its checksum is {crc:#010x}, it is {computed:#010x}")
    # Bytes behind the last entry are under the checksum: whoever wrote them meant them, and Kafka passes over them.
    entries = memoryview(data)[_HEADER_SIZE : _HEADER_SIZE + count * _ENTRY.size]
    return [_entry_of(*fields) for fields in _ENTRY.iter_unpack(entries)]


def _entry_of(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp_ms: int,
    coordinator_epoch: int,
    txn_first_offset: int,
) -> ProducerEntry:
    newest = BatchMetadata(last_sequence, last_offset, offset_delta, timestamp_ms)
    return ProducerEntry(
        producer_id,
        epoch,
        coordinator_epoch,
        timestamp_ms,
        txn_first_offset if txn_first_offset >= 0 else None,
        (newest,) if last_offset >= 0 else (),
    )


def build_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The bytes of a snapshot, its entries in the order given.

    >>> build_snapshot([]).hex(" ", -4)
    '00014867 4bc70000 0000'
    """
    packed = [_packed(entry) for entry in entries]
    body = pack(_COUNT, len(packed)) + b"".join(packed)
    return pack(_PREFIX, SNAPSHOT_VERSION, crc32c_of(body)) + body


def _packed(entry: ProducerEntry) -> bytes:
    return pack(
        _ENTRY,
        entry.producer_id,
        entry.epoch,
        entry.last_sequence,
        entry.last_offset,
        entry.batches[-1].offset_delta if entry.batches else 0,
        entry.last_timestamp_ms,
        entry.coordinator_epoch,
        -1 if entry.txn_first_offset is None else entry.txn_first_offset,
    )


def write_snapshot(fs: FileSystem, path: str, entries: Iterable[ProducerEntry], *, sync: bool) -> None:
    """Write a snapshot as Kafka does: in place, and without cutting what may have been there.

    What a crash leaves behind, or a longer file of the same name, does not match its checksum and is thrown away.
    """
    file = fs.open_write(path)
    try:
        file.write_at(0, build_snapshot(entries))
        if sync:
            file.sync()
    finally:
        file.close()
