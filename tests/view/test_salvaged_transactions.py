"""Committed reading around damage: nothing that was aborted, everything that is known to be committed."""

import os
from pathlib import Path

import pytest

import tidelog
from tests.log.logs import ABORT, COMMIT, a_log, end_txn, in_txn, lead
from tidelog.records import read_batches
from tidelog.view import LogDirView
from tidelog.view.pruning import plan
from tidelog.view.request import Request
from tidelog.view.salvaged_transactions import salvaged_transactions

PLACES = 14


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Four segments. Committed: 3, 7, 12, 13, and the plain 8, 10 and 16; aborted: 0, 1, 5, 11; the rest is markers."""
    log = a_log(tmp_path, name="orders-0")
    lead(log, in_txn(1, 0, 2))
    end_txn(log, 1, ABORT)
    lead(log, in_txn(2, 0, 1))
    end_txn(log, 2, COMMIT)
    lead(log, in_txn(1, 2, 1))
    log.roll()
    end_txn(log, 1, ABORT)
    lead(log, in_txn(2, 1, 1))
    lead(log, 1)
    log.roll()
    end_txn(log, 2, COMMIT)
    lead(log, 1)
    lead(log, in_txn(1, 3, 1))
    lead(log, in_txn(2, 2, 2))
    end_txn(log, 2, COMMIT)
    end_txn(log, 1, ABORT)
    log.roll()
    lead(log, 1)
    log.close()
    for path in (tmp_path / "orders-0").glob("*.txnindex"):
        path.unlink()  # the markers alone tell
    return tmp_path


def committed(logs: LogDirView) -> tuple[set[int], list[str]]:
    scan = logs.scan("orders", columns=["offset"], committed=True, on_corruption="skip")
    return set(scan.to_table().column("offset").to_pylist()), scan.notices


def batches_of(log: Path) -> list[tuple[int, int, int, bool]]:
    """Position, size, producer, and whether it is a marker, of every batch."""
    found, position = [], 0
    for batch in read_batches(log.read_bytes()):
        found.append((position, batch.size_in_bytes, batch.producer_id, batch.is_control))
        position += batch.size_in_bytes
    return found


@pytest.mark.parametrize("place", range(PLACES))
@pytest.mark.parametrize("kind", ["length", "both", "cut"])
def test_committed_reading_around_damage_gives_nothing_that_was_not_committed(
    root: Path, place: int, kind: str
) -> None:
    whole, notices = committed(tidelog.open(root))
    assert (whole, notices) == ({3, 7, 8, 10, 12, 13, 16}, [])
    everything = [(log, *one) for log in sorted(root.glob("*/*.log")) for one in batches_of(log)]
    assert len(everything) == PLACES + 1  # the last is the end of the log, and no damage
    log, position, size, producer, is_control = everything[place]
    data = bytearray(log.read_bytes())
    if kind == "cut":
        os.truncate(log, position + size // 2)
    else:
        data[position + 8] ^= 0x40  # a length that no batch can have
        data[position + size - 1] ^= kind == "both"
        log.write_bytes(data)
    found, notices = committed(tidelog.open(root))
    assert found <= whole
    assert {8, 10, 16} - found <= {8, 10}
    assert 16 in found
    assert notices
    if kind == "length":  # which the next batch proves
        assert found == whole
    elif is_control and producer == 2 and place == 8:
        assert 7 not in found
        assert any("producer 2 from offset 7 on" in notice for notice in notices)


@pytest.mark.parametrize("place", range(PLACES))
@pytest.mark.parametrize("more", [2, 5, 1 << 40])
def test_an_offset_that_is_too_large_hides_no_aborted_transaction(root: Path, place: int, more: int) -> None:
    log, position, *_ = [(log, *one) for log in sorted(root.glob("*/*.log")) for one in batches_of(log)][place]
    data = bytearray(log.read_bytes())
    offset = int.from_bytes(data[position : position + 8], "big") + more
    data[position : position + 8] = offset.to_bytes(8, "big")
    log.write_bytes(data)
    partition = tidelog.open(root)["orders", 0]
    known = salvaged_transactions(partition, plan(partition, Request(), notices=[]))
    for aborted in (0, 1, 5, 11):
        is_left_out = any(
            one.producer_id == 1 and one.first_offset <= aborted <= one.last_offset for one in known.aborted
        )
        assert is_left_out or aborted >= known.last_stable_offset or offset - more in (aborted, aborted - 1)


def test_what_was_decided_before_the_damage_stays(root: Path) -> None:
    os.truncate(sorted(root.glob("*/*.log"))[2], 10)
    found, notices = committed(tidelog.open(root))
    assert found == {3, 8, 16}
    assert "offset 9" in " ".join(notices) or "offsets 9" in " ".join(notices)
    assert "producer 2 from offset 7 on" in " ".join(notices)
