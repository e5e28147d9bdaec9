"""A log as a plain list: what the crash campaign holds the engine's files against.

    State        the batches that were appended and not truncated, and where the log starts and ends
    Batch        the bytes of one, and the few header fields that matter, read here and not by the engine
    Producers    producer state and aborted transactions, by replaying batches from any of them on

Nothing here is shared with the engine but the format itself.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_HEADER = struct.Struct(">qiibIhiqqqhii")
_MARKER = struct.Struct(">hhhi")  # key: version, type; value: version, coordinator epoch
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_ABORT, _COMMIT = 0, 1


class Batch(NamedTuple):
    """A batch of version 2, as it lies in a `.log` file."""

    data: bytes
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    marker: tuple[int, int] | None  # control type and coordinator epoch

    @property
    def end(self) -> int:
        return self.last_offset + 1

    def __repr__(self) -> str:
        return f"{self.base_offset}-{self.last_offset} ({len(self.data)} bytes, crc {self.data[17:21].hex()})"


class Aborted(NamedTuple):
    """A row of a transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class State(NamedTuple):
    """What a log was at one moment. Batches below the start stay: they may still lie in the files."""

    batches: tuple[Batch, ...] = ()
    start: int = 0
    end: int = 0
    origin: int = 0  # where the log began, or was last begun anew

    def appended(self, batches: Iterable[Batch]) -> "State":
        """The state behind an append."""
        new = (*self.batches, *batches)
        return self._replace(batches=new, end=new[-1].end)

    def cut(self, offset: int) -> "State":
        """The state behind `truncate_to`: a batch goes as a whole."""
        kept = tuple(batch for batch in self.batches if batch.last_offset < offset)
        return self._replace(batches=kept, start=min(self.start, offset), end=offset)

    def first_from(self, offset: int) -> int:
        """The number of the first batch that ends at or after an offset."""
        for number, batch in enumerate(self.batches):
            if batch.last_offset >= offset:
                return number
        return len(self.batches)


def batch_of(data: bytes) -> Batch:
    """The batch that these bytes are."""
    base, _, epoch, magic, _, bits, delta, _, max_time, producer, producer_epoch, sequence, _ = _HEADER.unpack_from(
        data
    )
    assert magic == 2
    marker = None
    if bits & _CONTROL:
        # One record, its fields all of one byte: length, attributes, two deltas, key length 4; value length 6 between.
        control = data[_HEADER.size + 5 : _HEADER.size + 9] + data[_HEADER.size + 10 : _HEADER.size + 16]
        _, kind, _, coordinator_epoch = _MARKER.unpack(control)
        marker = (kind, coordinator_epoch)
    return Batch(
        data, base, base + delta, max_time, epoch, producer, producer_epoch, sequence,
        bool(bits & _TRANSACTIONAL), marker,
    )  # fmt: skip


def stamped(data: bytes, base_offset: int, leader_epoch: int) -> Batch:
    """The batch that a leader makes of what a client sent: the checksum covers neither offset nor epoch."""
    return batch_of(struct.pack(">q", base_offset) + data[8:12] + struct.pack(">i", leader_epoch) + data[16:])


def batches_in(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Position and bytes of the batches in a `.log` file, by their lengths; what is left over comes last."""
    position = 0
    while len(content) - position >= _HEADER.size:
        size = int.from_bytes(content[position + 8 : position + 12], "big", signed=True) + 12
        if size < _HEADER.size or size > len(content) - position:
            break
        yield position, content[position : position + size]
        position += size
    if position < len(content):
        yield position, content[position:]


class Known(NamedTuple):
    """What is known of a producer."""

    epoch: int = -1
    coordinator_epoch: int = -1
    last_timestamp_ms: int = -1
    txn_first_offset: int | None = None
    batches: tuple[tuple[int, int, int, int], ...] = ()  # last sequence, last offset, offset delta, timestamp


class Producers:
    """The producers as they are behind some batches."""

    def __init__(self, batches: Sequence[Batch] = ()) -> None:
        self.known: dict[int, Known] = {}
        self.aborted: list[Aborted] = []
        for batch in batches:
            self.add(batch)

    def add(self, batch: Batch) -> None:
        """Follow one batch."""
        if batch.producer_id < 0:
            return
        known = self.known.get(batch.producer_id, Known())
        if known.epoch != batch.producer_epoch:
            known = known._replace(epoch=batch.producer_epoch, batches=())
        known = known._replace(last_timestamp_ms=batch.max_timestamp_ms)
        if batch.marker is not None:
            if known.txn_first_offset is not None and batch.marker[0] == _ABORT:
                others = self.open_txns(apart_from=batch.producer_id)
                self.aborted.append(
                    Aborted(batch.producer_id, known.txn_first_offset, batch.base_offset, min([*others, batch.end]))
                )
            known = known._replace(coordinator_epoch=batch.marker[1], txn_first_offset=None)
        else:
            delta = batch.last_offset - batch.base_offset
            newest = (batch.base_sequence + delta, batch.last_offset, delta, batch.max_timestamp_ms)
            known = known._replace(batches=(*known.batches, newest)[-5:])
            if batch.is_transactional and known.txn_first_offset is None:
                known = known._replace(txn_first_offset=batch.base_offset)
        self.known[batch.producer_id] = known

    def open_txns(self, apart_from: int | None = None) -> list[int]:
        """The first offsets of the open transactions."""
        return sorted(
            known.txn_first_offset
            for producer_id, known in self.known.items()
            if known.txn_first_offset is not None and producer_id != apart_from
        )
