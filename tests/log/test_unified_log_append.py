"""Appending to a log: who gives the offsets, when a segment is rolled, what is refused."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviours import behaviour
from tests.log.logs import (
    NOW,
    RAFT_LEADER,
    a_log,
    bases_of,
    batch,
    clock_of,
    epochs_of,
    follow,
    lead,
    names_in,
    of_producer,
    offsets_in,
    records_in,
    snapshots_of,
)
from tidelog.errors import (
    CorruptionError,
    InvalidRecordError,
    LogClosedError,
    MessageTooLargeError,
    OffsetsOutOfOrderError,
    RecordListTooLargeError,
    UnexpectedAppendOffsetError,
)
from tidelog.log import LogConfig, ManualClock, UnifiedLog
from tidelog.records import Codec, NewRecord, build_message_set
from tidelog.testing.disk import SimulatedFileSystem

ONE = len(batch(1))
SEGMENT_MS = 1_800_000
NO_TIMESTAMP = -1
CODECS_BY_MAGIC = [(0, Codec.NONE), (0, Codec.LZ4), (1, Codec.NONE), (1, Codec.LZ4), (2, Codec.NONE), (2, Codec.LZ4)]


def three_of(magic: int, codec: Codec, first_offset: int) -> bytearray:
    """Three records in the format of a release; one batch from version 2 on, or where compressed."""
    records = [NewRecord(b"k%d" % number, b"value", NOW) for number in range(3)]
    if magic == 2:
        return batch(records, base_offset=first_offset, codec=codec, partition_leader_epoch=0)
    return build_message_set(magic, records, base_offset=first_offset, codec=codec)


# -- offsets -----------------------------------------------------------------------------------------------------------


@behaviour("LOG-003")
def test_a_leader_gives_every_batch_the_next_offsets_also_behind_a_roll(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    firsts = [lead(log, 3).first_offset, lead(log, 3).first_offset]
    log.roll()
    assert [*firsts, lead(log, 3).first_offset] == [0, 3, 6]
    assert offsets_in(log) == [*range(9)]


@behaviour("LOG-002")
def test_the_leader_of_a_quorum_gives_offsets_itself_and_they_must_be_the_next_ones(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, batch(3, base_offset=0, partition_leader_epoch=0), origin=RAFT_LEADER)
    with pytest.raises(UnexpectedAppendOffsetError):
        lead(log, batch(3, base_offset=1, partition_leader_epoch=0), origin=RAFT_LEADER)
    lead(log, batch(3, base_offset=3, partition_leader_epoch=0), origin=RAFT_LEADER)
    assert (log.log_start_offset, log.log_end_offset) == (0, 6)


@behaviour("LOG-105")
def test_a_leader_stamps_its_epoch_on_every_batch(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 2, epoch=72)
    assert [part.leader_epoch for part in log.active_segment.log.batches()] == [72]
    assert epochs_of(log) == [(72, 0)]


@behaviour("LOG-106")
def test_a_follower_learns_the_epochs_of_the_batches_it_is_sent(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    follow(log, batch(2, partition_leader_epoch=72), batch(1, base_offset=2, partition_leader_epoch=73))
    assert epochs_of(log) == [(72, 0), (73, 2)]


@behaviour("LOG-092")
def test_a_follower_that_is_sent_the_old_format_forgets_all_epochs(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 1, epoch=5)
    follow(log, build_message_set(1, [NewRecord(b"k", b"v", NOW)], base_offset=1))
    assert epochs_of(log) == []
    assert log.leader_epochs.checkpoint.read() == []


@behaviour("LOG-084")
def test_a_follower_refuses_a_buffer_whose_offsets_go_back(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    with pytest.raises(OffsetsOutOfOrderError):
        follow(log, *(batch(1, base_offset=offset, partition_leader_epoch=0) for offset in (0, 1, 3, 2, 4)))
    assert log.log_end_offset == 0


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
@behaviour("LOG-085")
def test_a_follower_refuses_what_lies_below_its_log_end(tmp_path: Path, magic: int, codec: Codec) -> None:
    log = a_log(tmp_path)
    follow(log, three_of(magic, codec, 0))
    with pytest.raises(UnexpectedAppendOffsetError):
        follow(log, three_of(magic, codec, 0))
    follow(log, three_of(magic, codec, 3))
    assert offsets_in(log) == [*range(6)]


@pytest.mark.parametrize(("magic", "codec"), CODECS_BY_MAGIC)
@behaviour("LOG-086")
def test_the_refusal_names_the_offsets_with_which_an_empty_log_could_begin(
    tmp_path: Path, magic: int, codec: Codec
) -> None:
    log = a_log(tmp_path, log_start_offset=7)
    with pytest.raises(UnexpectedAppendOffsetError) as refusal:
        follow(log, three_of(magic, codec, 4))
    assert (refusal.value.first_offset, refusal.value.last_offset) == (4, 6)


@given(
    junk=st.binary(max_size=200),
    damage=st.lists(st.tuples(st.integers(0, 199), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 400),
)
@behaviour("LOG-135")
def test_of_arbitrary_bytes_a_follower_takes_whole_valid_batches_or_none(
    junk: bytes, damage: list[tuple[int, int]], cut: int
) -> None:
    sound = batch(2, partition_leader_epoch=0) + batch(1, base_offset=2, partition_leader_epoch=0)
    sent = bytearray(sound + junk)[: len(sound) + len(junk) - cut]
    for position, value in damage:
        if position < len(sent):
            sent[position] = value
    log = a_log("/data", fs=SimulatedFileSystem(ManualClock(NOW)))
    try:
        follow(log, sent)
    except (CorruptionError, OffsetsOutOfOrderError, UnexpectedAppendOffsetError):
        assert (log.log_end_offset, log.size) == (0, 0)
    kept = [*log.active_segment.log.batches()]
    assert sum(part.size for part in kept) == log.size
    assert log.log_end_offset == (kept[-1].next_offset if kept else 0)
    assert len(records_in(log)) == sum(part.records_count for part in kept)


# -- what fits ---------------------------------------------------------------------------------------------------------


@behaviour("LOG-065")
def test_an_append_that_would_not_fit_an_empty_segment_is_refused(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=2 * ONE)
    follow(log, batch(1, partition_leader_epoch=0), batch(1, base_offset=1, partition_leader_epoch=0))
    log.config = replace(log.config, segment_bytes=2 * ONE - 1)
    with pytest.raises(RecordListTooLargeError) as refusal:
        follow(log, *(batch(1, base_offset=offset, partition_leader_epoch=0) for offset in (2, 3)))
    assert refusal.value.error_code == 18
    assert log.log_end_offset == 2


@behaviour("LOG-067", "LOG-068")
def test_a_batch_above_the_limit_is_refused_by_a_leader_and_taken_by_a_follower(tmp_path: Path) -> None:
    log = a_log(tmp_path, max_message_bytes=ONE)
    lead(log, 1)
    larger = batch([NewRecord(b"k0", b"value!", NOW)])
    assert len(larger) == ONE + 1
    with pytest.raises(MessageTooLargeError) as refusal:
        lead(log, larger)
    assert refusal.value.error_code == 10
    follow(log, batch([NewRecord(b"k0", b"value!", NOW)], base_offset=1, partition_leader_epoch=0))
    assert log.log_end_offset == 2


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@behaviour("LOG-066")
def test_a_compacted_topic_takes_no_record_without_key(tmp_path: Path, codec: Codec) -> None:
    log = a_log(tmp_path, cleanup_policy=("compact",))
    keyed, unkeyed = NewRecord(b"k", b"v", NOW), NewRecord(None, b"v", NOW)
    for records, wrong in (([unkeyed], 0), ([unkeyed, keyed], 0), ([keyed, unkeyed], 1)):
        with pytest.raises(InvalidRecordError) as refusal:
            lead(log, batch(records, codec=codec))
        assert [error.batch_index for error in refusal.value.record_errors] == [wrong]
        assert refusal.value.error_code == 87
    lead(log, batch([keyed, keyed], codec=codec))
    assert log.log_end_offset == 2


@behaviour("LOG-083")
def test_a_record_without_value_is_read_without_value(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, batch([NewRecord(b"k", None, NOW)]))
    assert [(record.key, record.value) for record in records_in(log)] == [(b"k", None)]


@behaviour("LOG-087")
def test_a_record_without_timestamp_is_taken(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 1, timestamp_ms=NO_TIMESTAMP)
    assert [record.timestamp_ms for record in records_in(log)] == [NO_TIMESTAMP]


@behaviour("LOG-072")
def test_what_a_follower_appends_is_indexed_by_time(tmp_path: Path) -> None:
    log = a_log(tmp_path, index_interval_bytes=1)
    for offset in range(100):
        follow(log, batch(1, timestamp_ms=NOW + offset, base_offset=offset, partition_leader_epoch=0))
    index = log.active_segment.time_index
    assert (index.entries, index.last_entry) == (99, (NOW + 99, 99))


# -- rolling -----------------------------------------------------------------------------------------------------------


@behaviour("LOG-015")
def test_without_timestamps_a_segment_grows_old_by_the_clock_but_not_while_it_is_empty(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_ms=SEGMENT_MS)
    clock_of(log).advance(SEGMENT_MS + 1)
    lead(log, 1, timestamp_ms=NO_TIMESTAMP)
    assert bases_of(log) == [0]
    lead(log, 1, timestamp_ms=NO_TIMESTAMP)
    assert bases_of(log) == [0, 1]
    clock_of(log).advance(SEGMENT_MS)
    lead(log, 1, timestamp_ms=NO_TIMESTAMP)
    assert bases_of(log) == [0, 1]


@behaviour("LOG-016")
def test_behind_a_first_record_without_timestamp_later_timestamps_do_not_roll(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_ms=SEGMENT_MS)
    lead(log, 1, timestamp_ms=NO_TIMESTAMP)
    lead(log, 1, timestamp_ms=NOW + SEGMENT_MS + 1)
    assert bases_of(log) == [0]


@behaviour("LOG-017")
def test_with_timestamps_a_segment_grows_old_by_them_and_not_by_the_clock(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_ms=SEGMENT_MS)
    lead(log, 1)
    clock_of(log).advance(2 * SEGMENT_MS)
    lead(log, 1)
    lead(log, 1, timestamp_ms=NOW + SEGMENT_MS)
    assert bases_of(log) == [0]
    lead(log, 1, timestamp_ms=NOW + SEGMENT_MS + 1)
    assert bases_of(log) == [0, 3]


@behaviour("LOG-018")
def test_nothing_appended_rolls_nothing(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_ms=SEGMENT_MS)
    lead(log, 1, timestamp_ms=NO_TIMESTAMP)
    clock_of(log).advance(2 * SEGMENT_MS)
    assert lead(log, b"").size == 0
    assert bases_of(log) == [0]


@behaviour("LOG-019")
def test_every_segment_is_rolled_earlier_by_a_jitter_of_its_own(tmp_path: Path) -> None:
    jitter = 20 * 60 * 1000
    log = UnifiedLog.open(
        tmp_path / "topic-0",
        LogConfig(segment_ms=SEGMENT_MS, segment_jitter_ms=jitter),
        clock=ManualClock(NOW),
        rng=random.Random(7),
        lock=False,
    )
    own = log.active_segment.jitter_ms
    assert 0 < own < jitter
    lead(log, 1)
    lead(log, 1, timestamp_ms=NOW + SEGMENT_MS - jitter)
    lead(log, 1, timestamp_ms=NOW + SEGMENT_MS - own)
    assert bases_of(log) == [0]
    lead(log, 1, timestamp_ms=NOW + SEGMENT_MS - own + 1)
    assert bases_of(log) == [0, 3]
    assert log.active_segment.jitter_ms != own


@behaviour("LOG-020")
def test_a_segment_takes_no_more_than_fits(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=10 * ONE - 1)
    for _ in range(11):
        lead(log, 1)
    assert bases_of(log) == [0, 9]


def test_behind_a_gap_a_segment_and_its_snapshot_begin_with_the_batch_that_opened_it(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=ONE)
    follow(log, batch(1, partition_leader_epoch=0))
    follow(log, batch(1, base_offset=100, partition_leader_epoch=0))
    assert (bases_of(log), snapshots_of(log), offsets_in(log)) == ([0, 100], [100], [0, 100])


@behaviour("LOG-021")
def test_an_empty_segment_whose_index_is_full_is_made_anew(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 2)
    log.roll()
    full = log.active_segment
    full.offset_index.resize(0)
    lead(log, 1)
    assert bases_of(log) == [0, 2]
    assert log.active_segment is not full
    assert log.active_segment.offset_index.max_entries > 1
    assert offsets_in(log) == [0, 1, 2]


@behaviour("LOG-022", "LOG-043")
def test_behind_a_roll_all_before_it_is_flushed_and_the_producers_are_in_a_snapshot(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    for sequence in range(3):
        lead(log, of_producer(1, sequence))
        log.roll()
        assert log.recovery_point < log.active_segment.base_offset
        log.tick()
        assert log.recovery_point == log.active_segment.base_offset
    assert snapshots_of(log) == [1, 2, 3]
    lead(log, of_producer(1, 3))
    log.flush()
    assert snapshots_of(log) == [1, 2, 3]


@behaviour("LOG-023")
def test_the_recovery_point_stays_while_the_snapshot_of_a_roll_is_not_on_the_disk() -> None:
    disk = SimulatedFileSystem(ManualClock(NOW))
    log = a_log("/data", fs=disk)
    lead(log, of_producer(1, 0))
    disk.fail(operation="sync", path="*.snapshot", error="Input/output error")
    log.roll()
    log.tick()
    assert log.recovery_point == 0
    assert "Input/output error" in str(log.failure)
    with pytest.raises(LogClosedError):
        lead(log, of_producer(1, 1))


@behaviour("LOG-058")
def test_a_log_whose_files_were_given_back_cannot_be_rolled(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    log.release()
    with pytest.raises(LogClosedError) as refusal:
        log.roll()
    assert refusal.value.error_code == 56


@behaviour("LOG-062")
def test_a_flush_passes_over_an_empty_segment_unless_it_is_forced(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 1)
    log.roll()
    log.flush()
    assert names_in(log, ".index") == ["00000000000000000000.index"]
    log.flush(force=True)
    assert names_in(log, ".index") == ["00000000000000000000.index", "00000000000000000001.index"]
