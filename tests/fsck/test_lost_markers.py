"""Segments that lost the markers at their end: a repair must not turn aborted records into committed ones."""

import os
import shutil
from pathlib import Path

import pytest

from tests.fsck.world import NOW
from tests.golden.corpus import case
from tidelog.fsck import check
from tidelog.fsck.findings import Report
from tidelog.fsck.mending import RepairResult, repair
from tidelog.log import Isolation, ManualClock, UnifiedLog
from tidelog.records.batches import read_batches
from tidelog.records.committed import AbortedTxn, committed_batches
from tidelog.view.files import ReadOnlyFiles
from tidelog.view.partition import PartitionView

LOST, NEXT = 51, 70  # base offsets
ABORTED_AT = {1: (0, 61), 2: (7, 54)}  # first offset and marker of the transactions that are aborted in the segment
LARGE = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(shutil.copytree(case("kafka-4.3/4-transactions") / "image", tmp_path / "w"))


def partition(root: Path) -> Path:
    return root / "txn-main-0"


def file_of(root: Path, suffix: str, base: int = LOST) -> Path:
    return partition(root) / f"{base:020}{suffix}"


def checked(root: Path) -> Report:
    return check(str(root), deep=True)


def repaired(root: Path) -> RepairResult:
    return repair(str(root), clock=ManualClock(NOW))


def lost_markers(report: Report) -> list[str]:
    return [finding.message for finding in report.findings if finding.code == "TXN-MARKER"]


def offsets(root: Path, *, committed: bool) -> set[int]:
    view = PartitionView.at(ReadOnlyFiles(), str(partition(root)))
    return {record.offset for record in view.read(committed=committed)}


def offsets_by_broker(root: Path) -> set[int]:
    """What a consumer is given that fetches as long as there is something, and gets the aborted ones each time."""
    log = UnifiedLog.open(str(partition(root)), clean_shutdown=True, recovery_point=1 << 40, clock=ManualClock(NOW))
    log.update_high_watermark(log.log_end_offset)
    found: set[int] = set()
    offset = log.log_start_offset
    while True:
        region = log.read(offset, LARGE, Isolation.COMMITTED)
        batches = list(read_batches(region.read()))
        if not batches:
            log.release()
            return found
        aborted = [AbortedTxn(txn.producer_id, txn.first_offset) for txn in region.aborted or ()]
        found |= {record.offset for batch in committed_batches(batches, aborted) for record in batch}
        offset = batches[-1].last_offset + 1


@pytest.mark.parametrize("size", [0, 100, 330, 410, 600, 700, 1640, 1700])
def test_a_repair_keeps_the_aborts_whose_markers_were_at_the_lost_end(root: Path, size: int) -> None:
    before = offsets(root, committed=True)
    os.truncate(file_of(root, ".log"), size)
    index = file_of(root, ".txnindex").read_bytes()
    assert lost_markers(checked(root)) == []
    result = repaired(root)
    assert result.is_clean, result.after.findings
    assert file_of(root, ".txnindex").read_bytes() == index
    assert checked(root).is_clean
    assert lost_markers(checked(root)) == []
    assert repaired(root).done == []
    left = offsets(root, committed=False)
    assert offsets(root, committed=True) == before & left
    assert offsets_by_broker(root) == before & left


def test_an_index_with_a_damaged_entry_is_rebuilt_and_the_loss_reported(root: Path) -> None:
    os.truncate(file_of(root, ".log"), 700)
    data = bytearray(file_of(root, ".txnindex").read_bytes())
    data[9] ^= 1  # the producer of the entry for the marker that is left
    file_of(root, ".txnindex").write_bytes(data)
    messages = ["the marker at 61 that aborts the transaction of 1 is lost"]
    assert [one for one in lost_markers(checked(root)) if "is lost" in one] == messages
    result = repaired(root)
    assert result.is_clean
    assert "TXN-MARKER" in {finding.code for finding in result.left}


def test_transactions_that_ended_in_a_missing_segment_are_reported(root: Path) -> None:
    for path in partition(root).glob(f"{LOST:020}.*"):
        path.unlink()
    words = "ended in the missing offsets 51 to 69; whether it was committed is unknown"
    expected = {f"the transaction of producer {one} from offset {ABORTED_AT[one][0]} on {words}" for one in (1, 2)}
    assert set(lost_markers(checked(root))) == expected
    result = repaired(root)
    assert {finding.message for finding in result.left if finding.code == "TXN-MARKER"} >= expected


def test_transactions_that_ended_in_a_lost_end_without_index_are_reported(root: Path) -> None:
    os.truncate(file_of(root, ".log"), 700)
    file_of(root, ".txnindex").unlink()
    file_of(root, ".snapshot", NEXT).unlink()
    (message,) = lost_markers(checked(root))
    assert message.startswith("the transaction of producer 1 from offset 0 on may have ended in the missing offsets 55")
    assert "TXN-MARKER" in {finding.code for finding in repaired(root).left}


def test_a_transaction_that_the_next_snapshot_knows_as_open_is_not_reported(root: Path) -> None:
    """Segment 37 ends in the middle of the transactions of the producers 1 and 2, and the snapshot at 51 says so."""
    os.truncate(file_of(root, ".log", 37), file_of(root, ".log", 37).stat().st_size - 1)
    assert lost_markers(checked(root)) == []


def test_the_end_of_the_log_is_cut_as_before(root: Path) -> None:
    last = sorted(partition(root).glob("*.log"))[-1]
    batches = list(read_batches(last.read_bytes()))
    marker = next(batch for batch in batches if batch.is_control)
    before = sum(len(bytes(batch.buffer)) for batch in batches[: batches.index(marker)])
    os.truncate(last, before + 10)
    assert repaired(root).is_clean
    assert not last.with_suffix(".txnindex").exists()
    assert any("is open: its end may be among" in message for message in lost_markers(checked(root)))
