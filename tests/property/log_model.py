"""A log as a plain list of batches: what `test_log_model` holds the engine to.

The model keeps every batch that was appended and not truncated, also those that the engine has deleted since; which of
them are still there follows from the base offset of the first segment. Producers and transactions are found by going
through the list. Nothing here knows of files, indexes or snapshots.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.log import Isolation, UnifiedLog
from tidelog.records import ControlType, NewRecord, RecordBatch, read_batches

MAX_KNOWN = 5  # batches of a producer that a duplicate is compared with


class Sent(NamedTuple):
    """A batch in the list."""

    base_offset: int
    records: tuple[NewRecord, ...]
    leader_epoch: int
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    is_transactional: bool = False
    marker: ControlType | None = None

    @property
    def last_offset(self) -> int:
        return self.base_offset + len(self.records) - 1

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.records)

    @property
    def max_timestamp_ms(self) -> int:
        return max(record.timestamp_ms for record in self.records)

    @property
    def last_sequence(self) -> int:
        return self.sequence + len(self.records) - 1


@dataclass
class Producer:
    """What is known of a producer."""

    epoch: int = -1
    known: list[Sent] = field(default_factory=list)  # its last batches, of this epoch
    txn_start: int | None = None

    @property
    def next_sequence(self) -> int:
        return self.known[-1].last_sequence + 1 if self.known else 0

    def note(self, batch: Sent) -> None:
        """Take in a batch of data."""
        if batch.producer_epoch != self.epoch:
            self.epoch, self.known = batch.producer_epoch, []
        self.known = [*self.known, batch][-MAX_KNOWN:]
        if batch.is_transactional and self.txn_start is None:
            self.txn_start = batch.base_offset


class EndedTxn(NamedTuple):
    """A transaction whose marker may not be replicated yet."""

    start: int
    marker_offset: int
    is_certain: bool = True  # False: since the producers were loaded from a snapshot, it may be forgotten


class LogModel:
    """The list, the bounds, the producers."""

    def __init__(self) -> None:
        self.batches: list[Sent] = []
        self.log_start = self.log_end = self.high_watermark = 0
        self.producers: dict[int, Producer] = {}
        self.ended: list[EndedTxn] = []

    def present(self, first_base: int) -> list[Sent]:
        """The batches from the first segment on."""
        return [batch for batch in self.batches if batch.base_offset >= first_base]

    # -- changes -----------------------------------------------------------------------------------------------------

    def append(self, batch: Sent) -> None:
        """Take in a batch that the log has taken."""
        self.batches.append(batch)
        self.log_end = batch.next_offset
        if batch.producer_id < 0:
            return
        producer = self.producers.setdefault(batch.producer_id, Producer())
        if batch.marker is None:
            producer.note(batch)
            return
        if batch.producer_epoch != producer.epoch:
            producer.epoch, producer.known = batch.producer_epoch, []
        if producer.txn_start is not None:
            self.ended.append(EndedTxn(producer.txn_start, batch.base_offset))
            producer.txn_start = None

    def set_high_watermark(self, offset: int) -> None:
        self.high_watermark = min(max(offset, self.log_start), self.log_end)
        self.ended = [txn for txn in self.ended if txn.marker_offset >= self.high_watermark]

    def raise_log_start(self, offset: int) -> None:
        self.log_start = offset
        self.ended = [txn for txn in self.ended if txn.marker_offset >= offset]

    def truncate(self, offset: int) -> None:
        """Drop the batch that holds `offset` and all behind it; the producers are to be loaded again."""
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        self.log_end = offset
        self.log_start = min(self.log_start, offset)
        self.forget_ended()

    def forget_ended(self) -> None:
        """The producers are loaded again: of transactions that ended, any may be remembered until the next watermark.

        A replay meets their markers once more, replicated or not, as far as no snapshot spares it that.
        """
        replayed = LogModel()
        for batch in self.batches:
            replayed.append(batch)
        self.ended = [txn._replace(is_certain=False) for txn in replayed.ended]

    def start_anew(self, offset: int) -> None:
        """Drop everything."""
        self.batches, self.ended, self.producers = [], [], {}
        self.log_start = self.log_end = self.high_watermark = offset

    # -- answers -----------------------------------------------------------------------------------------------------

    def stable_bounds(self) -> tuple[int, int]:
        """The lowest and the highest offset that the last stable offset may be."""
        is_open = [producer.txn_start for producer in self.producers.values() if producer.txn_start is not None]
        certain = [*is_open, *(txn.start for txn in self.ended if txn.is_certain)]
        possible = [*is_open, *(txn.start for txn in self.ended)]
        low, high = (
            min([self.high_watermark, *(max(start, self.log_start) for start in starts)])
            for starts in (possible, certain)
        )
        return low, high

    def aborted(self) -> set[int]:
        """The offsets of records in transactions that were aborted."""
        open_txns: dict[int, list[Sent]] = {}
        offsets: set[int] = set()
        for batch in self.batches:
            if batch.marker is None and batch.is_transactional:
                open_txns.setdefault(batch.producer_id, []).append(batch)
            elif batch.marker is not None:
                ended = open_txns.pop(batch.producer_id, [])
                if batch.marker is ControlType.ABORT:
                    offsets.update(offset for data in ended for offset in range(data.base_offset, data.next_offset))
        return offsets

    def visible(self, first_base: int, limit: int) -> list[Sent]:
        """The batches below the limit of a reader: whole ones only."""
        return [batch for batch in self.present(first_base) if batch.last_offset < limit]

    def offset_for_time(self, segments: Sequence[int], timestamp_ms: int, limit: int) -> tuple[int, int] | None:
        """Timestamp and offset of the first record at or after a time, in the first segment that reaches it."""
        for batches in self._by_segment(segments):
            if batches and max(batch.max_timestamp_ms for batch in batches) >= timestamp_ms:
                return _first(batches, timestamp_ms, self.log_start, limit)
        return None

    def largest_time(self, segments: Sequence[int], limit: int) -> tuple[int, int] | None:
        """Timestamp and offset of the first record with the largest timestamp, deleted or not."""
        batches = self.present(segments[0])
        largest = max((batch.max_timestamp_ms for batch in batches), default=-1)
        return _first(batches, largest, -1, limit) if batches else None

    def _by_segment(self, segments: Sequence[int]) -> Iterable[list[Sent]]:
        for base, following in zip(segments, [*segments[1:], None], strict=True):
            yield [
                b for b in self.batches if b.base_offset >= base and (following is None or b.base_offset < following)
            ]

    def history(self) -> dict[int, Producer]:
        """Every producer, by all batches in the list."""
        replayed = LogModel()
        for batch in self.batches:
            replayed.append(batch)
        return replayed.producers

    def limit_of(self, isolation: Isolation, last_stable_offset: int) -> int:
        """The first offset that a reader may not see."""
        if isolation is Isolation.LOG_END:
            return self.log_end
        return self.high_watermark if isolation is Isolation.HIGH_WATERMARK else last_stable_offset


def _first(batches: Iterable[Sent], timestamp_ms: int, first_offset: int, limit: int) -> tuple[int, int] | None:
    for batch in batches:
        for offset, record in enumerate(batch.records, batch.base_offset):
            if record.timestamp_ms >= timestamp_ms and offset >= first_offset:
                return (record.timestamp_ms, offset) if offset < limit else None
    return None


# -- a log in the words of the model -----------------------------------------------------------------------------------


def batches_in(data: bytes) -> list[Sent]:
    """The batches that some bytes of a log are."""
    return [_sent(batch) for batch in read_batches(data)]


def _sent(batch: object) -> Sent:
    assert isinstance(batch, RecordBatch)
    batch.ensure_valid()
    found = list(batch)
    assert [record.offset for record in found] == list(range(batch.base_offset, batch.next_offset))
    return Sent(
        batch.base_offset,
        tuple(NewRecord(record.key, record.value, record.timestamp_ms) for record in found),
        batch.partition_leader_epoch,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.is_transactional,
        ControlType.parse(found[0].key) if batch.is_control else None,
    )


def read_on(log: UnifiedLog, offset: int, isolation: Isolation) -> list[Sent]:
    """Read to the end."""
    found: list[Sent] = []
    while batches := batches_in(log.read(offset, 1 << 20, isolation).read()):
        found += batches
        offset = batches[-1].next_offset
    return found


def committed_offsets(log: UnifiedLog, offset: int) -> list[int]:
    """The offsets that a consumer of committed data gets, a few batches at a time, without those it is told to drop."""
    offsets: list[int] = []
    while True:
        region = log.read(offset, 400, Isolation.COMMITTED)
        batches = batches_in(region.read())
        if not batches:
            return offsets
        to_come = sorted(region.aborted or (), key=lambda txn: txn.first_offset)
        is_aborted: set[int] = set()
        for batch in batches:
            while to_come and to_come[0].first_offset <= batch.last_offset:
                is_aborted.add(to_come.pop(0).producer_id)
            if batch.marker is ControlType.ABORT:
                is_aborted.discard(batch.producer_id)
            if batch.marker is None and not (batch.is_transactional and batch.producer_id in is_aborted):
                offsets += range(batch.base_offset, batch.next_offset)
        offset = batches[-1].next_offset
