"""Recovering one segment: whatever its indexes held and wherever its batches end, what is sound is kept and indexed."""

import random
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.segments_language import (
    ABORT,
    COMMIT,
    FS,
    NOW,
    Recovered,
    a_segment,
    all_offsets,
    batch,
    marker,
    offsets_in,
    open_segment,
)
from tidelog.log import ManualClock
from tidelog.log.offsets import TimestampAndOffset
from tidelog.log.producer_entry import ProducerEntry
from tidelog.log.producer_state import ProducerStateManager
from tidelog.log.segment import LogSegment
from tidelog.log.transaction_index import AbortedTxnEntry

ALL = 1 << 20


def read(segment: LogSegment, offset: int, max_bytes: int = ALL) -> list[int]:
    return offsets_in(segment.read(offset, max_bytes, segment.size))


def make_noise_of(path: Path, seed: int) -> None:
    """Overwrite a file with bytes that mean nothing."""
    path.write_bytes(random.Random(seed).randbytes(max(path.stat().st_size, 200)))


@behaviour("SEG-017")
@pytest.mark.parametrize("seed", range(5))
def test_recovery_makes_every_offset_readable_again_whatever_the_offset_index_held(tmp_path: Path, seed: int) -> None:
    a_segment(tmp_path, 0, *(batch(offset) for offset in range(100))).close()
    good = (tmp_path / f"{0:020}.index").read_bytes()
    make_noise_of(tmp_path / f"{0:020}.index", seed)
    segment = open_segment(tmp_path)
    assert Recovered(segment).bytes_cut == 0
    for offset in range(100):
        region = segment.read(offset, 1, segment.size, at_least_one=True)
        assert offsets_in(region) == [offset]
    segment.close()
    assert (tmp_path / f"{0:020}.index").read_bytes() == good


@behaviour("SEG-018")
@pytest.mark.parametrize("seed", range(5))
def test_recovery_makes_every_time_exact_again_whatever_the_time_index_held(tmp_path: Path, seed: int) -> None:
    a_segment(tmp_path, 0, *(batch(offset) for offset in range(100))).close()
    good = (tmp_path / f"{0:020}.timeindex").read_bytes()
    make_noise_of(tmp_path / f"{0:020}.timeindex", seed)
    segment = open_segment(tmp_path)
    assert Recovered(segment).bytes_cut == 0
    for offset in range(100):
        assert segment.find_time(offset * 10, 0) == TimestampAndOffset(offset * 10, offset, 0)
        if offset < 99:
            assert segment.find_time(offset * 10 + 1, 0) == TimestampAndOffset(offset * 10 + 10, offset + 1, 0)
    segment.close()
    assert (tmp_path / f"{0:020}.timeindex").read_bytes() == good


def two_transactions() -> list[bytearray]:
    """Producer 1 from offset 100 on, producer 2 from 102 on, which aborts at 106; producer 1 commits at 107."""
    return [
        batch(100, b"a", b"b", producer_id=1, sequence=0, is_transactional=True),
        batch(102, b"a", b"b", producer_id=2, sequence=0, is_transactional=True),
        batch(104, b"a", b"b", producer_id=1, sequence=2, is_transactional=True),
        marker(106, ABORT, 2),
        marker(107, COMMIT, 1),
    ]


@behaviour("SEG-019", "SEG-021")
def test_recovery_finds_the_aborted_transactions_again(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, 100, *two_transactions())
    recovered = Recovered(segment)
    assert list(segment.txn_index.entries()) == [AbortedTxnEntry(2, 102, 106, 100)]
    assert recovered.producers.map_end_offset == 108
    assert recovered.producers.first_undecided_offset is None


@behaviour("SEG-020", "SEG-021")
def test_recovery_knows_where_a_transaction_began_in_an_earlier_segment(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, 100, *two_transactions())
    before = tmp_path / "before"
    before.mkdir()
    earlier = a_segment(
        before,
        75,
        batch(75, *[b"v"] * 10, producer_id=2, sequence=0, is_transactional=True),
        batch(85, *[b"v"] * 5, producer_id=2, sequence=10, is_transactional=True),
    )
    producers = ProducerStateManager(FS, str(tmp_path), ManualClock(NOW))
    Recovered(earlier, producers=producers)
    last: ProducerEntry = producers.producers[2]
    assert last.txn_first_offset == 75

    # In the segment itself producer 2 goes on with sequence 15.
    segment.delete()
    batches = two_transactions()
    batches[1] = batch(102, b"a", b"b", producer_id=2, sequence=15, is_transactional=True)
    segment = a_segment(tmp_path, 100, *batches)
    recovered = Recovered(segment, producers=producers)
    assert list(segment.txn_index.entries()) == [AbortedTxnEntry(2, 75, 106, 100)]
    assert recovered.producers.map_end_offset == 108


@behaviour("SEG-022")
def test_recovery_finds_the_leader_epochs_again_one_entry_per_change(tmp_path: Path) -> None:
    segment = a_segment(
        tmp_path,
        100,
        batch(104, b"a", b"b", epoch=0),
        batch(106, b"a", b"b", epoch=1),
        batch(108, b"a", b"b", epoch=1),
        batch(110, b"a", b"b", epoch=2),
    )
    assert Recovered(segment).epochs.entries == ((0, 104), (1, 106), (2, 110))


@behaviour("SEG-023")
@pytest.mark.parametrize("seed", range(20))
def test_recovery_keeps_exactly_the_messages_before_the_make_noise_of(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    count = 50
    segment = a_segment(tmp_path, 0, *(batch(offset, b"abcde", timestamp_ms=1) for offset in range(count)))
    size = segment.size // count
    damaged = rng.randrange(count)
    segment.log.file.write_at(damaged * size + rng.randrange(20), rng.randbytes(size * 3))
    segment.log.size = segment.log.file.size

    recovered = Recovered(segment)

    assert all_offsets(segment) == list(range(damaged))
    assert recovered.bytes_cut > 0
    assert (tmp_path / f"{0:020}.log").stat().st_size == damaged * size
    assert segment.next_offset() == damaged
    if damaged:
        assert read(segment, damaged - 1) == [damaged - 1]


@pytest.mark.parametrize("wrong", [batch(3), batch(5), batch(4, b"a", b"b", b"c"), batch(2**63 - 1, timestamp_ms=NOW)])
def test_batches_before_one_whose_offsets_go_back_are_kept(tmp_path: Path, wrong: bytearray) -> None:
    segment = a_segment(tmp_path, 0, batch(0), batch(5))
    for data in (wrong, batch(6)):
        segment.log.append(data)
    recovered = Recovered(segment)
    assert all_offsets(segment) == [0, 5]
    assert recovered.bytes_cut == len(wrong) + len(batch(6))
    assert [cut.is_sound for cut in recovered.cuts] == [True]
