"""Reading a log: by offset up to a limit, by time, and how far the watermarks let whom see."""

import threading
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.logs import (
    ABORT,
    COMMITTED,
    HIGH_WATERMARK,
    LOG_END,
    MEGABYTE,
    NOW,
    a_log,
    all_replicated,
    bases_of,
    batch,
    end_txn,
    fill,
    follow,
    in_txn,
    lead,
    offsets_in,
    records_from,
    records_in,
)
from tidelog.errors import InvalidRequestError, OffsetOutOfRangeError
from tidelog.log import Isolation, OffsetMetadata, TimestampAndOffset, UnifiedLog
from tidelog.log.list_offsets import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from tidelog.records import AbortedTxn, Codec, NewRecord, committed_batches, read_batches

ONE = len(batch(1))
THREE = len(batch(3))
INFINITE = 2**63 - 1


def assert_readable(log: UnifiedLog, isolation: Isolation, limit: int) -> None:
    """Below the limit a read gives records, all below it; from there to the log end it gives nothing."""
    for offset in range(log.log_start_offset, limit):
        found = records_from(log, offset, isolation)
        assert found[0].offset <= offset <= found[-1].offset < limit
    for offset in range(limit, log.log_end_offset + 1):
        region = log.read(offset, MEGABYTE, isolation)
        assert (region.size, region.start.offset, region.is_first_batch_incomplete) == (0, offset, False)
        assert not region.start.is_offset_only


# -- limits ------------------------------------------------------------------------------------------------------------


@behaviour("LOG-009")
def test_a_follower_reads_up_to_the_log_end(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 3)
    lead(log, 2)
    assert_readable(log, LOG_END, 5)


@behaviour("LOG-010")
def test_a_consumer_reads_up_to_the_high_watermark(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 3)
    lead(log, 2)
    for limit in (0, 3, 5):
        log.update_high_watermark(limit)
        assert_readable(log, HIGH_WATERMARK, limit)


@behaviour("LOG-011", "LOG-012")
def test_a_reader_of_committed_data_reads_up_to_the_oldest_open_transaction(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, in_txn(1, 0, 5))
    lead(log, 3)
    lead(log, in_txn(2, 0, 10))
    assert log.log_end_offset == 18

    def assert_stable(limit: int) -> None:
        assert log.last_stable_offset == limit
        assert_readable(log, COMMITTED, limit)

    assert_stable(0)
    log.update_high_watermark(18)
    assert_stable(0)
    assert end_txn(log, 1).last_offset == 18
    assert_stable(0)
    log.update_high_watermark(18)
    assert_stable(0)
    log.update_high_watermark(19)
    assert_stable(8)
    end_txn(log, 2)
    assert_stable(8)
    all_replicated(log)
    assert_stable(20)


@behaviour("LOG-001")
def test_the_high_watermark_holds_behind_a_roll(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 3)
    assert log.read(0, 2048, HIGH_WATERMARK, at_least_one=False).size == 0
    log.raise_high_watermark(3)
    log.roll()
    assert log.read(0, 2048, HIGH_WATERMARK, at_least_one=False).size == THREE
    assert offsets_in(log, HIGH_WATERMARK) == [0, 1, 2]
    lead(log, 3)
    assert log.read(3, 2048, HIGH_WATERMARK, at_least_one=False).size == 0
    assert offsets_in(log, HIGH_WATERMARK) == [0, 1, 2]


@behaviour("LOG-006")
def test_the_high_watermark_is_moved_by_those_who_know_and_not_beyond_the_log_end(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 3)
    assert log.high_watermark == 0
    assert log.raise_high_watermark(1)
    assert not log.raise_high_watermark(0)
    assert log.high_watermark == 1
    assert log.update_high_watermark(5) == 3
    with pytest.raises(InvalidRequestError):
        log.raise_high_watermark(4)
    with pytest.raises(InvalidRequestError):
        log.update_high_watermark(-1)
    assert log.high_watermark == 3


@behaviour("LOG-008")
def test_a_follower_is_told_what_became_of_the_high_watermark(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 100)
    assert [log.update_high_watermark(asked) for asked in (99, 100, 100, 101)] == [99, 100, 100, 100]


@behaviour("LOG-131")
def test_listeners_hear_of_a_high_watermark_that_is_raised_or_cut_off(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    heard: list[int] = []
    log.watermarks.listeners.append(heard.append)
    lead(log, 3)
    lead(log, 3)
    assert heard == []
    log.raise_high_watermark(4)
    log.truncate_to(3)
    lead(log, 3)
    log.truncate_fully_and_start_at(4)
    assert heard == [4, 3, 4]


@behaviour("LOG-117")
def test_the_watermarks_come_with_their_places_in_the_files(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    fill(log, [3, 2])
    log.update_high_watermark(4)
    bounds = log.offsets()
    assert bounds.high_watermark == OffsetMetadata(4, 3, ONE)
    assert bounds.last_stable_offset == OffsetMetadata(4, 3, ONE)
    assert bounds.log_end == OffsetMetadata(5, 3, 2 * ONE)
    log.update_high_watermark(2)
    assert log.offsets().high_watermark == OffsetMetadata(2, 0, 2 * ONE)


@behaviour("LOG-111")
def test_a_reader_beside_the_owner_never_sees_a_transaction_before_its_end(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    leaked: list[int] = []
    rounds = 0

    def read_on() -> None:
        nonlocal rounds
        while log.log_end_offset < 400:
            rounds += 1
            region = log.read(0, MEGABYTE, COMMITTED)
            aborted = [AbortedTxn(entry.producer_id, entry.first_offset) for entry in region.aborted or ()]
            for part in committed_batches(read_batches(region.read()), aborted):
                leaked.extend(record.offset for record in part)

    reader = threading.Thread(target=read_on)
    reader.start()
    for sequence in range(200):
        lead(log, in_txn(15, sequence))
        all_replicated(log)
        assert log.read(2 * sequence, MEGABYTE, COMMITTED).size == 0
        end_txn(log, 15, ABORT)
        all_replicated(log)
    reader.join()
    assert leaked == []
    assert rounds


# -- what a read gives -------------------------------------------------------------------------------------------------


@behaviour("LOG-055")
def test_records_are_read_in_order_and_nothing_at_the_log_end(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=5 * ONE)
    values = [b"%d" % number for number in range(100, 200)]
    for value in values:
        lead(log, batch([NewRecord(b"k", value, NOW)]))
    assert len(log.segments) > 10
    for offset, value in enumerate(values):
        first = records_from(log, offset)[0]
        assert (first.offset, first.value) == (offset, value)
    assert [record.value for record in records_in(log)] == values
    assert records_from(log, 100) == []


@behaviour("LOG-056")
def test_an_offset_that_is_missing_reads_the_next_one(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=5 * ONE)
    present = [*range(50), *range(50, 200, 7)]
    for offset in present:
        follow(log, batch(1, base_offset=offset, partition_leader_epoch=0))
    for offset in range(50, present[-1]):
        assert records_from(log, offset)[0].offset == min(one for one in present if one >= offset)


@behaviour("LOG-057")
def test_where_a_segment_ends_with_a_gap_the_next_one_goes_on(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    fill(log, [4, 1])
    log.segments[0].truncate_to(1)
    assert records_from(log, 1)[0].offset == 4


@pytest.mark.parametrize("max_bytes", [1, 100, 100_000])
@behaviour("LOG-059")
def test_a_first_batch_above_the_limit_is_given_all_the_same(tmp_path: Path, max_bytes: int) -> None:
    log = a_log(tmp_path, segment_bytes=5 * ONE)
    present = [*range(20), *range(50, 200, 7)]
    for offset in present:
        follow(log, batch(1, base_offset=offset, partition_leader_epoch=0))
    for offset in range(50, present[-1]):
        region = log.read(offset, max_bytes)
        assert not region.is_first_batch_incomplete
        assert region.size >= ONE
        assert region.first_batch is not None
        assert region.first_batch.base_offset == min(one for one in present if one >= offset)


@behaviour("LOG-060")
def test_a_limit_that_cuts_the_first_batch_gives_that_many_bytes_and_says_so(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    fill(log, [3])
    for offset in range(3):
        assert log.read(offset, 0, at_least_one=False).size == 0
        region = log.read(offset, 1, at_least_one=False)
        assert len(region.read()) == 1
        assert region.is_first_batch_incomplete


@behaviour("LOG-061")
def test_offsets_outside_of_the_log_are_refused(tmp_path: Path) -> None:
    log = a_log(tmp_path, log_start_offset=1024)
    lead(log, 1)
    assert log.read(1025, 1000).size == 0
    for offset in (0, 1023, 1026):
        with pytest.raises(OffsetOutOfRangeError) as refusal:
            log.read(offset, 1000)
        assert refusal.value.error_code == 1


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
@behaviour("LOG-063")
def test_an_offset_inside_of_a_compressed_batch_reads_the_whole_batch(tmp_path: Path, codec: Codec) -> None:
    log = a_log(tmp_path)
    lead(log, batch(2, codec=codec))
    lead(log, batch(2, codec=codec))
    for offset in range(4):
        assert records_from(log, offset)[0].offset == offset - offset % 2


@behaviour("LOG-118")
def test_an_aborted_transaction_over_two_segments_is_named_where_it_begins(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=THREE)
    lead(log, in_txn(137, 0, 3, epoch=5))
    lead(log, in_txn(137, 3, 3, epoch=5))
    assert bases_of(log) == [0, 3]
    assert log.first_unstable_offset == 0
    end_txn(log, 137, ABORT, epoch=5)
    all_replicated(log)
    assert log.first_unstable_offset is None
    region = log.read(0, 2048, COMMITTED)
    assert region.aborted is not None
    assert [(entry.producer_id, entry.first_offset) for entry in region.aborted] == [(137, 0)]
    assert log.read(0, 2048, LOG_END).aborted is None


@behaviour("LOG-026")
def test_segments_are_chosen_by_a_range_of_offsets(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    fill(log, [10, 10, 2])

    def between(start: int, end: int) -> list[int]:
        return [segment.base_offset for segment in log.local.segments.between(start, end)]

    assert between(13, 21) == [10, 20]
    assert between(0, 21) == [0, 10, 20]
    assert between(0, 20) == [0, 10]
    assert between(10, 10) == between(15, 15) == []
    with pytest.raises(InvalidRequestError):
        between(10, 0)


# -- by time -----------------------------------------------------------------------------------------------------------


@behaviour("LOG-073", "LOG-074", "LOG-075")
def test_offsets_by_time_come_with_the_epoch_of_their_batch(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=2 * ONE, index_interval_bytes=1)
    assert log.offset_for_time(0) is None
    lead(log, 1, timestamp_ms=NOW, epoch=0)
    lead(log, 1, timestamp_ms=NOW + 1, epoch=1)
    assert log.offset_for_time(NOW) == TimestampAndOffset(NOW, 0, 0)
    assert log.offset_for_time(NOW + 1) == TimestampAndOffset(NOW + 1, 1, 1)
    assert log.offset_for_time(NOW + 2) is None
    assert log.offset_for_time(EARLIEST) == TimestampAndOffset(-1, 0, 0)
    assert log.offset_for_time(EARLIEST_LOCAL) == TimestampAndOffset(-1, 0, 0)
    assert log.offset_for_time(LATEST) == TimestampAndOffset(-1, 2, 1)
    log.assign_epoch_start_offset(2, 2)
    assert log.offset_for_time(LATEST) == TimestampAndOffset(-1, 2, 2)


@behaviour("LOG-076")
def test_the_largest_time_is_found_with_the_first_record_that_has_it(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=2 * ONE, index_interval_bytes=1)
    for number, timestamp_ms in enumerate((NOW, NOW + 1, NOW)):
        lead(log, 1, timestamp_ms=timestamp_ms, epoch=number)
    assert log.offset_for_time(MAX_TIMESTAMP) == TimestampAndOffset(NOW + 1, 1, 1)


@behaviour("LOG-077")
def test_without_tiering_nothing_is_tiered(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    assert log.offset_for_time(LATEST_TIERED) == TimestampAndOffset(-1, -1, -1)
    lead(log, 1)
    assert log.offset_for_time(LATEST_TIERED) == TimestampAndOffset(-1, -1, -1)


@behaviour("LOG-130")
def test_a_segment_is_dated_by_its_first_batch_and_not_at_all_while_it_is_empty(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, batch([NewRecord(b"k", b"v", NOW - 5), NewRecord(b"k", b"v", NOW)]))
    lead(log, 1, timestamp_ms=NOW + 7)
    log.roll()
    assert [segment.first_batch_timestamp_ms for segment in log.segments] == [NOW, INFINITE]
