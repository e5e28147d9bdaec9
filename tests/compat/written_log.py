"""A log in the making: our engine writes it, and a model that knows nothing of the engine notes what must be there.

    log = WrittenLog(tmp_path / "orders-0", LogConfig(segment_bytes=8192), seed=1)
    log.send(codec=Codec.LZ4, producer=7, is_transactional=True)     a batch of random records
    log.end(7, ControlType.COMMIT)
    log.close()
    log.records, log.committed, log.markers, log.aborted             what a reader must find

Batches come from three producers in turn: our builder, kafka-python and aiokafka.
"""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.interop.judges import JUDGES, Seen
from tidelog.log import AppendInfo, AppendOrigin, Isolation, LogConfig, ManualClock, UnifiedLog
from tidelog.log.transaction_index import AbortedTxnEntry
from tidelog.records import (
    AbortedTxn,
    Batch,
    Codec,
    ControlType,
    EndTxnMarker,
    Header,
    NewRecord,
    Record,
    build_batch,
    build_end_txn_marker,
    committed_batches,
    read_batches,
)

T0 = 1_700_000_000_000
NO_PRODUCER = -1
COORDINATOR_EPOCH = 3
CODECS = list(Codec)
ANY_BYTES = bytes(range(256))


class WrittenLog:
    """A log of ours with its model. The clock stands at `now_ms` and moves on by itself."""

    def __init__(
        self, directory: Path, config: LogConfig, *, seed: int, now_ms: int = T0, leader_epoch: int = 0, **options: Any
    ) -> None:
        self.directory = directory
        self.clock = ManualClock(now_ms)
        self.leader_epoch = leader_epoch
        self.records: list[Seen] = []
        self.markers: list[tuple[int, ControlType]] = []
        self.aborted: list[AbortedTxnEntry] = []
        self._batches: list[tuple[int, int]] = []  # first and last offset
        self._hidden: set[int] = set()  # offsets of records whose transaction was aborted
        self._transactions: dict[int, list[int]] = {}  # by producer: the offsets of its open transaction
        self._sequences: dict[int, int] = {}  # by producer: the next
        self._sent: tuple[bytes, int] | None = None  # the last idempotent batch, and its first offset
        self._rng = random.Random(seed)
        self._config = config
        self._options = options
        self.log = self._open()

    def _open(self, **options: Any) -> UnifiedLog:
        options = {**self._options, **options}
        return UnifiedLog.open(
            self.directory, self._config, clock=self.clock, rng=random.Random(self._rng.random()), **options
        )

    # -- writing -------------------------------------------------------------------------------------------------

    def send(
        self, *, codec: Codec = Codec.NONE, producer: int = NO_PRODUCER, is_transactional: bool = False
    ) -> AppendInfo:
        """Append one batch of random records, as a client's."""
        self.clock.advance(self._rng.randrange(50))
        records = [self._new_record() for _ in range(self._rng.choice([1, 1, 2, 5, 12]))]
        options = {}
        if producer != NO_PRODUCER:
            options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": self._sequences.get(producer, 0)}
            if is_transactional:
                options["is_transactional"] = 1
        data = self._batch(codec, records, options)
        info = self._append(data)
        assert not info.is_duplicate
        assert (info.first_offset, info.last_offset) == (self.end - len(records), self.end - 1)
        self._note(records, info)
        self._batches.append((info.first_offset, info.last_offset))
        if producer != NO_PRODUCER:
            self._sequences[producer] = self._sequences.get(producer, 0) + len(records)
            self._sent = data, info.first_offset
        if is_transactional:
            offsets = range(info.first_offset, info.last_offset + 1)
            self._transactions.setdefault(producer, []).extend(offsets)
        return info

    def send_again(self) -> None:
        """Append the last idempotent batch once more, as after a lost answer."""
        assert self._sent is not None
        data, first_offset = self._sent
        before = self.end
        info = self._append(data)
        assert (info.is_duplicate, info.first_offset, self.end) == (True, first_offset, before)

    def end_transaction(self, producer: int, control_type: ControlType) -> None:
        """Append the marker with which a coordinator ends the transaction of a producer."""
        marker = build_end_txn_marker(
            EndTxnMarker(control_type, COORDINATOR_EPOCH),
            producer_id=producer,
            producer_epoch=0,
            timestamp_ms=self.clock.now_ms(),
        )
        info = self._append(bytes(marker), AppendOrigin.COORDINATOR)
        self.markers.append((info.first_offset, control_type))
        offsets = self._transactions.pop(producer)
        if control_type is ControlType.ABORT:
            self._hidden.update(offsets)
            stable = min((others[0] for others in self._transactions.values()), default=info.first_offset + 1)
            self.aborted.append(AbortedTxnEntry(producer, offsets[0], info.first_offset, stable))

    def truncate_to(self, offset: int) -> None:
        """Cut the log, as a follower does. Of a batch that holds the offset nothing stays; the next gets the offset.

        Only for logs without producers.
        """
        assert not self._sequences
        self.log.truncate_to(offset)
        assert self.end == offset
        end = next((first for first, last in self._batches if last >= offset), offset)
        self._batches = [(first, last) for first, last in self._batches if last < offset]
        self.records = [record for record in self.records if record.offset < end]
        self._let_files_go()

    def delete_records(self, offset: int) -> None:
        """Raise the log start, and let go what lies wholly below it."""
        self.log.delete_records(offset)
        assert self.log.delete_old_segments()
        self._let_files_go()
        first = self.log.segments[0].base_offset  # what lies in one segment with the log start stays in the file
        self.records = [record for record in self.records if record.offset >= first]

    def _let_files_go(self) -> None:
        self.clock.advance(self._config.file_delete_delay_ms)
        self.log.tick()

    def reopen(self, *, clean_shutdown: bool) -> None:
        """Close the log in good order and open it again, recovering everything unless told that it is clean."""
        self.close()
        self.log = self._open(clean_shutdown=clean_shutdown)
        self.log.update_high_watermark(self.end)

    def close(self) -> None:
        self.log.tick()
        self.log.close()

    def _append(self, data: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> AppendInfo:
        info = self.log.append_as_leader(memoryview(bytearray(data)), self.leader_epoch, origin)
        self.log.update_high_watermark(self.end)
        self.log.tick()
        return info

    def _batch(self, codec: Codec, records: list[NewRecord], options: dict[str, int]) -> bytes:
        maker = self._rng.choice([None, *JUDGES])
        if maker is None:
            return bytes(build_batch(records, codec=codec, **options))
        return maker.write(2, codec, records, **options)

    def _note(self, records: Iterable[NewRecord], info: AppendInfo) -> None:
        is_append_time = self._config.uses_append_time
        for offset, record in enumerate(records, info.first_offset):
            time = self.clock.now_ms() if is_append_time else record.timestamp_ms
            headers = tuple((header.key, header.value) for header in record.headers)
            self.records.append(Seen(offset, time, record.key, record.value, headers, int(is_append_time)))

    def _new_record(self) -> NewRecord:
        rng = self._rng
        size = rng.choice([0, 10, 100, 100, 400, 1500])
        value = rng.randbytes(size) if rng.random() < 0.5 else (b"tide " * (size // 5))
        return NewRecord(
            rng.choice([None, b"", b"key", rng.randbytes(12)]),
            rng.choice([None, value, value, value]),
            self.clock.now_ms() - rng.choice([0, 0, 1, 60_000]),  # clocks of producers differ
            tuple(Header(*rng.choice(_HEADERS)) for _ in range(rng.choice([0, 0, 0, 1, 4]))),
        )

    # -- what must be there --------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        return self.log.log_end_offset

    @property
    def offsets(self) -> list[int]:
        """The offset of every record, markers too."""
        return sorted([record.offset for record in self.records] + [offset for offset, _ in self.markers])

    @property
    def stable_end(self) -> int:
        """Where a reader of committed data stops: the first record of the oldest open transaction."""
        return min((offsets[0] for offsets in self._transactions.values()), default=self.end)

    @property
    def committed(self) -> list[Seen]:
        """What a reader of committed data is given."""
        end = self.stable_end
        return [record for record in self.records if record.offset < end and record.offset not in self._hidden]

    @property
    def last_sequences(self) -> dict[int, int]:
        """By producer, the sequence of its last record."""
        return {producer: sequence - 1 for producer, sequence in self._sequences.items()}

    @property
    def open_transactions(self) -> dict[int, int]:
        """By producer, where its open transaction begins."""
        return {producer: offsets[0] for producer, offsets in self._transactions.items()}


_HEADERS: list[tuple[str, bytes | None]] = [("h", b"1"), ("null", None), ("", b""), ("ключ", ANY_BYTES)]


def write_plain(log: WrittenLog, codecs: Iterable[Codec] = CODECS, rounds: int = 40) -> None:
    """Batches of producers that have no id, in every codec."""
    for _ in range(rounds):
        for codec in codecs:
            log.send(codec=codec)


def write_transactions(log: WrittenLog, codecs: Iterable[Codec] = CODECS, rounds: int = 12, first: int = 1000) -> None:
    """Plain and idempotent batches, repeated ones, and transactions that overlap: committed, aborted, the last open."""
    plain, steady, one, two, last = NO_PRODUCER, first, first + 1, first + 2, first + 3
    for number in range(rounds):
        ends = [ControlType.COMMIT, ControlType.ABORT] if number % 2 else [ControlType.ABORT, ControlType.ABORT]
        for codec in codecs:
            log.send(codec=codec, producer=one, is_transactional=True)
            log.send(codec=codec, producer=plain)
            log.send(codec=codec, producer=two, is_transactional=True)
            log.send(codec=codec, producer=steady)
            log.send_again()
        log.end_transaction(two, ends[0])
        log.send(producer=one, is_transactional=True)
        log.end_transaction(one, ends[1])
    log.send(producer=last, is_transactional=True)
    log.send(producer=steady)


# -- reading ---------------------------------------------------------------------------------------------------------


def read_log(log: UnifiedLog, isolation: Isolation = Isolation.LOG_END, max_bytes: int = 10_000) -> list[Seen]:
    """Every record that a reader of this isolation is given, fetched as a consumer does, a piece at a time."""
    offset = log.log_start_offset
    end = {
        Isolation.LOG_END: log.log_end_offset,
        Isolation.HIGH_WATERMARK: log.high_watermark,
        Isolation.COMMITTED: log.last_stable_offset,
    }[isolation]
    records: list[Seen] = []
    while offset < end:
        region = log.read(offset, max_bytes, isolation)
        batches = list(read_batches(region.read()))
        assert batches, f"nothing at {offset}"
        aborted = [AbortedTxn(txn.producer_id, txn.first_offset) for txn in region.aborted or ()]
        records += (_seen(record) for batch in committed_batches(batches, aborted) for record in batch)
        offset = batches[-1].next_offset
    return [record for record in records if record.offset >= log.log_start_offset]  # a consumer drops the others


def batches_of(directory: Path) -> list[Batch]:
    """Every batch of the `.log` files of a directory."""
    return [batch for path in sorted(directory.glob("*.log")) for batch in read_batches(path.read_bytes())]


def files_of(directory: Path) -> dict[str, bytes]:
    """The files of a partition directory, by name."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def _seen(record: Record) -> Seen:
    headers = tuple((header.key, header.value) for header in record.headers)
    return Seen(record.offset, record.timestamp_ms, record.key, record.value, headers, int(record.timestamp_type))
