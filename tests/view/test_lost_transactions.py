"""Committed reading where the segment that held the end of transactions lost its log."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.log.logs import ABORT, COMMIT, a_log, end_txn, in_txn, lead
from tests.view.scans import view
from tidelog.cli.main import cli
from tidelog.errors import CorruptionError
from tidelog.log.names import file_name
from tidelog.view.scan import Scan

LOST = 4  # the base offset of the segment
READABLE = [0, 10, 11, 13]  # whatever else is lost
UNKNOWN = r"00000000000000000004\.log: .* offsets 4 to 9 are missing; whether .* producer 1 from offset 1 on"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Three segments, the middle one without its log.

    Plain: 0, 10, 13; in transactions: 1 and 5 aborted at 6, 2 committed at 7, 3 open until it is committed at 12, after
    11. The markers at 6 and 7 are lost.
    """
    log = a_log(tmp_path / "root", name="orders-0", index_interval_bytes=1)
    lead(log, 1)
    for producer in (1, 2, 3):
        lead(log, in_txn(producer, 0, 1))
    log.roll()
    lead(log, 1)
    lead(log, in_txn(1, 1, 1))
    end_txn(log, 1, ABORT)
    end_txn(log, 2, COMMIT)
    lead(log, 2)
    log.roll()
    lead(log, 1)
    lead(log, in_txn(3, 1, 1))
    end_txn(log, 3, COMMIT)
    lead(log, 1)
    log.update_high_watermark(log.log_end_offset)
    log.close()
    directory = tmp_path / "root" / "orders-0"
    os.truncate(directory / file_name(LOST, ".log"), 0)
    return directory


def without(directory: Path, *patterns: str) -> Path:
    for pattern in patterns:
        found = list(directory.glob(pattern))
        assert found
        for path in found:
            path.unlink()
    return directory


def read(directory: Path, first: int = 0) -> list[int]:
    return [record.offset for record in view(directory).read(first, committed=True)]


def batches(directory: Path, first: int = 0) -> list[int]:
    return [batch.base_offset for batch in view(directory).batches(first, committed=True)]


def scan(directory: Path, first: int = 0, **options: str) -> tuple[list[int], str]:
    found = Scan.of(lambda: [view(directory)], columns=["offset"], committed=True, from_offset=first, **options)
    return found.to_table().column("offset").to_pylist(), " ".join(found.notices)


def strict_scan(directory: Path, first: int = 0) -> list[int]:
    return scan(directory, first)[0]


READERS = [read, batches, strict_scan]
Reader = Callable[..., list[int]]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


@pytest.mark.parametrize("reader", READERS)
def test_the_transaction_index_of_a_lost_segment_still_tells_what_was_aborted(damaged: Path, reader: Reader) -> None:
    assert [txn[:3] for txn in view(damaged).aborted_transactions()] == [(1, 1, 6)]
    assert reader(damaged) == [0, 2, 3, *READABLE[1:]]
    assert view(damaged).last_stable_offset == 14


@pytest.mark.parametrize("reader", READERS)
def test_an_index_that_reaches_beyond_the_end_of_a_closed_log_is_used(tmp_path: Path, reader: Reader) -> None:
    """The log was cut between two batches."""
    log = a_log(tmp_path, name="orders-0")
    lead(log, in_txn(1, 0, 1))
    log.roll()
    lead(log, 1)
    size = log.active_segment.size
    end_txn(log, 1, ABORT)
    log.roll()
    lead(log, 1)
    log.update_high_watermark(log.log_end_offset)
    log.close()
    os.truncate(tmp_path / "orders-0" / file_name(1, ".log"), size)
    assert reader(tmp_path / "orders-0") == [1, 3]


def test_what_is_neither_in_the_index_nor_in_a_snapshot_is_unknown(damaged: Path) -> None:
    """Producer 2 may have committed in the segment, or its transaction may be open."""
    without(damaged, "*.snapshot")
    with pytest.raises(CorruptionError, match=r"00000000000000000004\.log.* producer 2 from offset 2 on"):
        read(damaged)
    offsets, notice = scan(damaged, on_corruption="skip")
    assert offsets == READABLE
    assert "producer 2 from offset 2 on" in notice


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("patterns", [["*.txnindex"], ["*.txnindex", "*.snapshot"]])
def test_without_the_index_committed_readers_raise_for_what_is_undecided(
    damaged: Path, reader: Reader, patterns: list[str]
) -> None:
    without(damaged, *patterns)
    with pytest.raises(CorruptionError, match=UNKNOWN):
        reader(damaged)


@pytest.mark.parametrize("reader", READERS)
def test_records_after_the_lost_segment_do_not_depend_on_it(damaged: Path, reader: Reader) -> None:
    without(damaged, "*.txnindex")
    for first in (LOST, 10):
        assert reader(damaged, first) == READABLE[1:]


def test_a_marker_after_the_lost_segment_shows_that_the_transaction_is_not_open(tmp_path: Path, damaged: Path) -> None:
    """The last stable offset is known then, although it is not known what became of the records before."""
    without(damaged, "*.txnindex", "*.snapshot")
    log = a_log(tmp_path / "other", name="orders-0")
    lead(log, in_txn(1, 0, 1))
    log.roll()
    lead(log, 1)
    log.roll()
    lead(log, in_txn(1, 1, 1))
    end_txn(log, 1, ABORT)
    log.update_high_watermark(log.log_end_offset)
    log.close()
    other = without(tmp_path / "other" / "orders-0", "*.txnindex", "*.snapshot")
    os.truncate(other / file_name(1, ".log"), 0)
    assert view(other).last_stable_offset == 4
    assert read(other, 1) == []
    with pytest.raises(CorruptionError, match="producer 1 from offset 0 on"):
        read(other)
    with pytest.raises(CorruptionError, match="producer 1 from offset 1 on"):
        assert view(damaged).last_stable_offset


@pytest.mark.parametrize("patterns", [["*.txnindex"], ["*.txnindex", "*.snapshot"]])
def test_salvage_leaves_out_what_is_undecided_and_says_so(damaged: Path, patterns: list[str]) -> None:
    without(damaged, *patterns)
    offsets, notice = scan(damaged, on_corruption="skip")
    assert offsets == READABLE
    for producer in (1, 2, 3):
        assert f"producer {producer} from offset {producer} on" in notice
    assert "offsets 4 to 9 are missing" in notice


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("loss", [["*.txnindex"], ["*.txnindex", "*.snapshot"], []])
def test_a_log_without_open_transactions_is_read_whatever_was_lost(
    tmp_path: Path, reader: Reader, loss: list[str]
) -> None:
    log = a_log(tmp_path, name="orders-0")
    lead(log, in_txn(1, 0, 1))
    end_txn(log, 1, COMMIT)
    log.roll()
    lead(log, in_txn(1, 1, 1))
    end_txn(log, 1, ABORT)
    log.roll()
    lead(log, 1)
    log.update_high_watermark(log.log_end_offset)
    log.close()
    directory = without(tmp_path / "orders-0", *loss)
    os.truncate(directory / file_name(2, ".log"), 0)
    assert reader(directory) == [0, 4]


def test_the_commands_agree(damaged: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    places = str(damaged), "--topic", "orders"
    ways = [
        ("cat", *places, "--committed", "-o", "jsonl"),
        ("export", *places, "--to", str(target)),
    ]
    for way in ways:
        done = run(*way)
        assert (done.exit_code, "offsets 4 to 9 are missing" in done.stderr) == (1, True)
        rows = target.read_text() if target.exists() else done.stdout
        assert [json.loads(row)["offset"] for row in rows.splitlines()] == [0, 2, 3, *READABLE[1:]]
        target.unlink(missing_ok=True)
    without(damaged, "*.txnindex")
    for way in ways:
        done = run(*way)
        assert done.exit_code == 3
        assert "00000000000000000004.log" in done.stderr
        assert "--salvage leaves it out" in done.stderr
        assert not target.exists()
        done = run(*way, "--salvage", *(["--committed"] if way[0] == "export" else []))
        assert done.exit_code == 1
        assert "producer 1 from offset 1 on" in done.stderr
        target.unlink(missing_ok=True)
    assert "offsets 4 to 9 are missing" in run("ls", "-l", str(damaged)).stdout


def test_rows_that_may_be_uncommitted_are_given_to_who_wants_them_all(damaged: Path) -> None:
    without(damaged, "*.txnindex")
    done = run("cat", str(damaged), "--topic", "orders")
    assert (done.exit_code, len(done.stdout.splitlines())) == (1, 7)
    assert "which of its transactions were aborted cannot be known" in done.stderr
