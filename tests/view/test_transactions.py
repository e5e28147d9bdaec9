"""Committed reading: what is decided, what was aborted, with and without the files that say so."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import tidelog
from tests.golden.corpus import RELEASE, case, expected
from tests.log.logs import ABORT, COMMIT, a_log, all_replicated, batch, end_txn, in_txn, lead, snapshots_of
from tidelog.errors import CorruptRecordError
from tidelog.log import Isolation, TopicPartition, UnifiedLog
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.local_files import LocalFileSystem
from tidelog.records import NewRecord
from tidelog.view import PartitionView
from tidelog.view.files import ReadOnlyFiles

TRANSACTIONS = f"{RELEASE}/4-transactions"
PARTITIONS = sorted(path.stem for path in (case(TRANSACTIONS) / "expected").glob("*.json"))


def view_of(directory: str | Path) -> PartitionView:
    return PartitionView.at(ReadOnlyFiles(), str(directory))


def remove(suffix: str) -> Callable[[Path], None]:
    def run(directory: Path) -> None:
        for path in directory.glob(f"*{suffix}"):
            path.unlink()

    return run


def fill_with(data: bytes, suffix: str) -> Callable[[Path], None]:
    def run(directory: Path) -> None:
        for path in directory.glob(f"*{suffix}"):
            path.write_bytes(data)

    return run


def cut(suffix: str) -> Callable[[Path], None]:
    def run(directory: Path) -> None:
        for path in directory.glob(f"*{suffix}"):
            path.write_bytes(path.read_bytes()[:-3])

    return run


def nothing(directory: Path) -> None:
    """Leave it as it is."""


def both(*deeds: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda directory: [deed(directory) for deed in deeds][0]


LOSSES: dict[str, Callable[[Path], None]] = {
    "nothing": nothing,
    "no txnindex": remove(".txnindex"),
    "empty txnindex": fill_with(b"", ".txnindex"),
    "garbage in txnindex": fill_with(b"\x77" * 68, ".txnindex"),
    "an entry of another segment": fill_with(struct.pack(">hqqqq", 0, 7, 0, 1 << 40, 0), ".txnindex"),
    "cut txnindex": cut(".txnindex"),
    "no snapshot": remove(".snapshot"),
    "garbage in snapshots": fill_with(b"\x00\x01garbage", ".snapshot"),
    "neither": both(remove(".txnindex"), remove(".snapshot")),
    "logs alone": both(*(remove(suffix) for suffix in (".txnindex", ".snapshot", ".index", ".timeindex"))),
}


@pytest.mark.parametrize("name", PARTITIONS)
@pytest.mark.parametrize("loss", LOSSES)
def test_bounds_and_aborted_lists_are_those_of_kafka(name: str, loss: str, tmp_path: Path) -> None:
    shutil.copytree(case(TRANSACTIONS) / "image" / name, tmp_path / name)
    LOSSES[loss](tmp_path / name)
    view = view_of(tmp_path / name)
    for row in expected(TRANSACTIONS, name)["fetch_read_committed"]:
        if row["error"]:
            continue
        assert (view.high_watermark, view.last_stable_offset) == (row["highWatermark"], row["lastStableOffset"])
        if not row["batches"]:
            continue
        # Kafka may list more than the range asks for, never less.
        last = max(batch[1] for batch in row["batches"])
        ours = [[txn.producer_id, txn.first_offset] for txn in view.aborted_transactions(row["offset"], last + 1)]
        assert [txn for txn in row["aborted"] if txn in ours] == ours


@pytest.mark.parametrize("name", PARTITIONS)
@pytest.mark.parametrize("loss", LOSSES)
def test_committed_records_are_those_of_the_log(name: str, loss: str, tmp_path: Path) -> None:
    shutil.copytree(case(TRANSACTIONS) / "image" / name, tmp_path / "whole" / name)
    with UnifiedLog.open(tmp_path / "whole" / name, clean_shutdown=True) as log:
        all_replicated(log)
        committed = list(log.records(isolation=Isolation.COMMITTED))
    shutil.copytree(case(TRANSACTIONS) / "image" / name, tmp_path / name)
    LOSSES[loss](tmp_path / name)
    view = view_of(tmp_path / name)
    assert list(view.read(committed=True)) == committed
    for first in range(0, view.log_end_offset, 5):
        assert list(view.read(first, committed=True)) == [record for record in committed if record.offset >= first]


def a_log_of_transactions(root: Path, **config: int) -> UnifiedLog:
    """Aborted 0-1 and 5, committed 3, plain 7, open 8; markers at 2, 4 and 6."""
    log = a_log(root, **config)
    lead(log, in_txn(1, 0, 2))
    end_txn(log, 1, ABORT)
    lead(log, in_txn(2, 0, 1))
    end_txn(log, 2, COMMIT)
    lead(log, in_txn(1, 2, 1))
    end_txn(log, 1, ABORT)
    lead(log, 1)
    lead(log, in_txn(2, 1, 1))
    lead(log, 1)
    return log


def committed(view: PartitionView) -> list[int]:
    return [record.offset for record in view.read(committed=True)]


@pytest.mark.parametrize("rolled_at", [None, 1, 2, 3, 5, 6])
def test_transactions_across_segments_are_decided(rolled_at: int | None, tmp_path: Path) -> None:
    log = a_log(tmp_path)
    steps = [
        lambda: lead(log, in_txn(1, 0, 2)),
        lambda: lead(log, 1),
        lambda: end_txn(log, 1, ABORT),
        lambda: lead(log, in_txn(2, 0, 1)),
        lambda: lead(log, in_txn(1, 2, 1)),
        lambda: end_txn(log, 2, COMMIT),
        lambda: end_txn(log, 1, ABORT),
        lambda: lead(log, in_txn(1, 3, 1)),
    ]
    for number, step in enumerate(steps):
        if number == rolled_at:
            log.roll()
        step()
    all_replicated(log)
    view = view_of(log.directory)
    assert view.last_stable_offset == log.last_stable_offset == 8
    assert committed(view) == [2, 4]
    assert [txn[:3] for txn in view.aborted_transactions()] == [(1, 0, 3), (1, 5, 7)]


def test_an_abort_in_the_active_segment_is_known_before_its_index_is(tmp_path: Path) -> None:
    log = a_log_of_transactions(tmp_path)
    (tmp_path / "topic-0" / "00000000000000000000.txnindex").unlink()
    assert committed(view_of(log.directory)) == [3, 7]


def test_an_open_transaction_from_before_the_snapshot_holds_readers_back(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 1)
    lead(log, in_txn(1, 0, 1))
    log.roll()
    lead(log, 3)
    assert snapshots_of(log) == [2]
    assert (view_of(log.directory).last_stable_offset, committed(view_of(log.directory))) == (1, [0])


def test_a_marker_at_the_high_watermark_is_not_decided_yet(tmp_path: Path) -> None:
    log = a_log_of_transactions(tmp_path)
    checkpoint = OffsetCheckpoint(LocalFileSystem(), str(tmp_path / "replication-offset-checkpoint"))
    for high_watermark, stable in {2: 0, 3: 3, 4: 3, 5: 5, 6: 5, 7: 7, 8: 8, 9: 8, 10: 8}.items():
        checkpoint.write({TopicPartition("topic", 0): high_watermark})
        log.update_high_watermark(high_watermark)
        view = view_of(log.directory)
        assert view.last_stable_offset == stable
        assert view.limit_of(committed=True) == 8  # what the log itself has decided
        read = [record.offset for record in view.read(committed=True, end_bound="highWatermark")]
        assert read == [offset for offset in (3, 7) if offset < stable]


def test_a_snapshot_behind_the_high_watermark_does_not_hide_a_marker_before_it(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, in_txn(1, 0, 1))
    end_txn(log, 1, COMMIT)
    log.roll()
    lead(log, 1)
    assert snapshots_of(log) == [2]
    checkpoint = OffsetCheckpoint(LocalFileSystem(), str(tmp_path / "replication-offset-checkpoint"))
    checkpoint.write({TopicPartition("topic", 0): 1})
    log.update_high_watermark(1)
    assert view_of(log.directory).last_stable_offset == log.last_stable_offset == 0


def test_topics_without_transactions_are_not_walked_for_them(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    for number in range(3):
        lead(log, batch(1, producer_id=5, producer_epoch=0, base_sequence=number))
        log.roll()
    log.close()
    # Were the first segment walked, the damage in it would be met.
    path = tmp_path / "topic-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    view = view_of(tmp_path / "topic-0")
    assert view.log_end_offset == 3
    data[8:12] = bytes(4)
    path.write_bytes(data)
    assert view.aborted_transactions(1, 3) == []


def test_three_roots_with_one_partition_each_tell_its_transactions_once(tmp_path: Path) -> None:
    for broker in range(3):
        a_log_of_transactions(tmp_path / f"broker-{broker}").close()
    logs = tidelog.open(f"{tmp_path}/broker-*")
    assert committed(logs["topic", 0]) == [3, 7]


def test_the_offsets_of_many_batches_must_rise(tmp_path: Path) -> None:
    """They are compared as columns; one that goes back would end another transaction than its own."""
    directory = tmp_path / "topic-0"
    directory.mkdir()
    batches = [batch([NewRecord(None, bytes(60_000))], base_offset=offset) for offset in range(80)]
    sound = b"".join(map(bytes, batches))
    log = directory / f"{0:020}.log"
    log.write_bytes(sound)
    assert view_of(directory).last_stable_offset == len(batches)
    at = 40 * len(batches[0])
    log.write_bytes(sound[:at] + (38).to_bytes(8, "big") + sound[at + 8 :])
    with pytest.raises(CorruptRecordError, match=f"position {at}: offset 38 behind 39"):
        assert view_of(directory).last_stable_offset
