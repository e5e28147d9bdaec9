"""Batches and markers of producers, as the tests of producer state append them."""

from pathlib import Path

from tidelog.log.batch_info import BatchInfo, batch_info
from tidelog.log.clock import ManualClock
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.origin import AppendOrigin
from tidelog.log.producer_append import ProducerAppendInfo
from tidelog.log.producer_state import ProducerStateManager
from tidelog.log.producer_txn import CompletedTxn
from tidelog.records import ControlType, EndTxnMarker, NewRecord, build_batch, build_end_txn_marker

CLIENT, COORDINATOR, REPLICATION = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION
ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
NOW = 1_700_000_000_000
DAY = 86_400_000
PRODUCER = 1


def data(
    offset: int,
    sequence: int,
    *,
    epoch: int = 0,
    producer_id: int = PRODUCER,
    count: int = 1,
    is_transactional: bool = False,
    timestamp_ms: int = NOW,
) -> BatchInfo:
    """A batch of records, as the engine sees it."""
    batch = build_batch(
        [NewRecord(b"k", b"v", timestamp_ms)] * count,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    return batch_info(batch)


def marker(offset: int, *, epoch: int = 0, producer_id: int = PRODUCER, timestamp_ms: int = NOW) -> BatchInfo:
    """A batch that ends a transaction."""
    end = EndTxnMarker(COMMIT, 0)
    return batch_info(
        build_end_txn_marker(
            end, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=timestamp_ms, offset=offset
        )
    )


class Producers(ProducerStateManager):
    """A manager in a directory of its own, with appends of one batch as a log makes them."""

    def __init__(self, directory: Path, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock(NOW)
        super().__init__(
            LocalFileSystem(),
            str(directory),
            self.clock,
            expiration_ms=DAY,
            max_transaction_timeout_ms=300_000,
            verification=True,
        )

    def reopened(self) -> "Producers":
        """What another process would make of the same directory."""
        return Producers(Path(self.directory), self.clock)

    def write(
        self,
        offset: int,
        sequence: int,
        *,
        epoch: int = 0,
        producer_id: int = PRODUCER,
        is_transactional: bool = False,
        origin: AppendOrigin = CLIENT,
        timestamp_ms: int | None = None,
    ) -> None:
        """Append a batch of one record."""
        self.append(
            data(
                offset,
                sequence,
                epoch=epoch,
                producer_id=producer_id,
                is_transactional=is_transactional,
                timestamp_ms=self.clock.now_ms() if timestamp_ms is None else timestamp_ms,
            ),
            origin,
        )

    def end(
        self,
        offset: int,
        kind: ControlType = COMMIT,
        *,
        epoch: int = 0,
        producer_id: int = PRODUCER,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
    ) -> CompletedTxn | None:
        """Append a marker."""
        batch = marker(offset, epoch=epoch, producer_id=producer_id, timestamp_ms=self.clock.now_ms())
        return self.append(batch, COORDINATOR, EndTxnMarker(kind, coordinator_epoch), transaction_version)

    def append(
        self,
        batch: BatchInfo,
        origin: AppendOrigin = CLIENT,
        end: EndTxnMarker | None = None,
        transaction_version: int = 0,
    ) -> CompletedTxn | None:
        updates: dict[int, ProducerAppendInfo] = {}
        completed = self.stage(updates, batch, origin, end, transaction_version=transaction_version)
        self.apply(updates)
        if completed is not None:
            self.complete_txn(completed)
        self.map_end_offset = batch.next_offset
        return completed

    @property
    def files(self) -> list[str]:
        """The names in the directory."""
        return sorted(path.name for path in Path(self.directory).iterdir())
