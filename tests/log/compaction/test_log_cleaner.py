"""The cleaner at work: rounds in slices, one after the other, and how they make way for others."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.behaviours import behaviour
from tests.log.compaction.cleaners import CLEAN_FRUIT, FRUIT, Broker, bytes_of, half_written, kept, under_way, write
from tests.log.logs import HOUR, all_replicated, bases_of, batch, follow, records_in
from tidelog.errors import InvalidConfigError
from tidelog.log import UnifiedLog
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.compaction.cleaner_states import Paused
from tidelog.log.tasks import Call
from tidelog.records import Codec, NewRecord

FOUR_KEYS = "abcd abcd e"


@pytest.fixture
def broker() -> Broker:
    return Broker()


# -- round after round -------------------------------------------------------------------------------------------------


def test_what_is_dirty_is_cleaned_log_by_log_and_then_the_cleaner_sleeps(broker: Broker) -> None:
    fruit, roots = broker.log("fruit", FRUIT), broker.log("roots", "xx yy z", clean_to=2)
    broker.start()
    assert [kept(fruit), kept(roots)] == [CLEAN_FRUIT, "x0 x1 y3 z4"]
    assert broker.clean_to(fruit, roots) == [6, 4]
    write(fruit, "c ")
    broker.pass_time(broker.cleaner.config.backoff_ms - 1)
    assert kept(fruit) == "a3 b5 c6 c7"
    broker.pass_time(1)
    assert (kept(fruit), broker.clean_to(fruit)) == ("a3 b5 c7", 8)


def test_it_is_the_same_on_a_real_disk(tmp_path: Path) -> None:
    broker = Broker(directory=tmp_path)
    log = broker.log("fruit", FRUIT)
    broker.start()
    assert (kept(log), broker.text_of_checkpoint()) == (CLEAN_FRUIT, "0\n1\nfruit 0 6\n")


@pytest.mark.parametrize("config", [{"threads": 0}, {"enable": False}])
def test_without_threads_nothing_is_cleaned(config: dict[str, Any]) -> None:
    broker = Broker(**config)
    log = broker.log("fruit", FRUIT, clean_to=0)
    before = len(broker.schedule)
    broker.start()
    assert (len(broker.schedule), kept(log)) == (before, "a0 a1 b2 a3 b4 b5 c6")


def test_a_cleaner_without_backoff_lets_the_heartbeat_end() -> None:
    broker = Broker(backoff_ms=0)
    broker.log("fruit", FRUIT)
    broker.start()
    assert broker.schedule.next_due_in_ms == 1


def test_other_tasks_get_their_turn_between_the_slices_of_a_round(broker: Broker) -> None:
    log = under_way(broker, steps=1)
    done: list[str | None] = []
    broker.schedule.soon(Call("other", lambda: done.append(str(broker.cleaner.state_of(log.topic_partition)))))
    broker.step(2)
    assert done == ["Busy.IN_PROGRESS"]


def test_a_round_shows_how_far_it_is_and_what_it_did(broker: Broker) -> None:
    log = under_way(broker)
    assert broker.cleaner.running is not None
    cleanable, stats = broker.cleaner.running
    assert (cleanable.log, cleanable.first_uncleanable_offset) == (log, 6)
    assert 0 < stats.bytes_read < stats.map_bytes == cleanable.cleanable_bytes
    broker.pass_time(seconds=2)
    assert broker.cleaner.running is None
    report = broker.cleaner.last_rounds[log.topic_partition]
    assert (report.first_dirty, report.end_offset, report.ended_ms) == (0, 6, broker.clock.now_ms())
    assert (report.took_ms, report.stats.keys, report.stats.records.records_kept) == (2000, 2, 2)
    del broker.logs[log.topic_partition]
    broker.back_off()
    assert broker.cleaner.last_rounds == {}


@behaviour("CLN-058")
def test_the_next_round_begins_behind_a_gap_in_the_offsets(broker: Broker) -> None:
    log = broker.log("fruit", "ab", segment_bytes=250)
    for offset in (100, 101, 200, 201, 300):
        follow(log, batch([NewRecord(b"a", b"v" * 30, 1)], base_offset=offset, partition_leader_epoch=0))
    all_replicated(log)
    active = log.active_segment.base_offset
    assert active > 202
    broker.start()
    assert broker.clean_to(log) == active


@behaviour("CLN-038")
def test_what_is_not_replicated_is_not_touched(broker: Broker) -> None:
    log = broker.log("fruit", "aa aa aa aa")
    log.update_high_watermark(5)
    before = bytes_of(log, [4, 6])
    broker.start()
    assert (kept(log), broker.clean_to(log)) == ("a3 a4 a5 a6 a7", 4)
    assert bytes_of(log, [4, 6]) == before


@pytest.mark.parametrize("codec", list(Codec))
@behaviour("CLN-064")
def test_the_last_value_of_every_key_survives_whatever_the_codec(broker: Broker, codec: Codec) -> None:
    rng = random.Random(codec)
    log = broker.log("log", segment_bytes=3000)
    for number in range(300):
        record = NewRecord(b"k%d" % rng.randrange(20), b"%d" % number * 20, broker.clock.now_ms())
        write_batch(log, record, codec)
    before, size = latest_of(log), log.size
    broker.start()
    assert latest_of(log) == before
    assert log.size < size / 2
    assert broker.clean_to(log) == log.active_segment.base_offset


def write_batch(log: UnifiedLog, record: NewRecord, codec: Codec) -> None:
    log.append_as_leader(memoryview(batch([record], codec=codec)), 0)
    all_replicated(log)


def latest_of(log: UnifiedLog) -> dict[bytes, tuple[int, bytes]]:
    """The offset and the value of the last record of every key."""
    return {bytes(record.key or b""): (record.offset, bytes(record.value or b"")) for record in records_in(log)}


# -- lags --------------------------------------------------------------------------------------------------------------


@behaviour("CLN-062")
def test_the_longest_lag_forces_a_log_to_be_cleaned_and_not_before(broker: Broker) -> None:
    log = broker.log("fruit", "aabb c", clean_to=0, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=HOUR)
    broker.start()
    broker.pass_time(HOUR)
    assert kept(log) == "a0 a1 b2 b3 c4"
    broker.back_off()
    assert (kept(log), broker.clean_to(log)) == ("a1 b3 c4", 4)


@pytest.mark.parametrize("codec", list(Codec))
@behaviour("CLN-063")
def test_the_shortest_lag_protects_young_segments_whatever_the_codec(broker: Broker, codec: Codec) -> None:
    log = broker.log("fruit", min_compaction_lag_ms=HOUR)
    write(log, "aa bb ", codec=codec)
    broker.start()
    assert kept(log) == "a0 a1 b2 b3"
    broker.clock.advance(HOUR)
    write(log, "aa c", codec=codec)
    broker.back_off()
    assert (kept(log), broker.clean_to(log)) == ("a1 b3 a4 a5 c6", 4)
    broker.pass_time(HOUR)
    assert (kept(log), broker.clean_to(log)) == ("b3 a5 c6", 6)


# -- deletion ----------------------------------------------------------------------------------------------------------


@behaviour("CLN-065")
def test_a_log_that_is_compacted_and_deleted_from_is_both_and_goes_on(broker: Broker) -> None:
    log = broker.log("fruit", FRUIT, cleanup_policy=("compact", "delete"), retention_ms=HOUR)
    broker.start()
    assert (kept(log), log.log_start_offset) == (CLEAN_FRUIT, 0)
    broker.pass_time(HOUR + broker.cleaner.config.backoff_ms)
    assert (kept(log), bases_of(log), log.log_start_offset) == ("", [7], 7)
    write(log, FRUIT)
    broker.back_off()
    assert (kept(log), broker.clean_to(log)) == ("a10 b12 c13", 13)


@behaviour("CLN-074")
def test_a_compacted_log_loses_the_segments_below_its_start_also_when_there_is_nothing_to_clean(
    broker: Broker,
) -> None:
    log = broker.log("fruit", FRUIT, clean_to=6)
    logs_of_others = broker.log("other", FRUIT, cleanup_policy=("delete",))
    for each in (log, logs_of_others):
        each.delete_records(4)
    broker.start()
    assert [bases_of(log), bases_of(logs_of_others)] == [[3, 6], [0, 3, 6]]
    assert broker.cleaner.state_of(log.topic_partition) is None


def test_old_segments_go_after_every_round_and_not_only_when_all_logs_are_clean(broker: Broker) -> None:
    log, other = broker.log("fruit", FRUIT), broker.log("other", FRUIT, clean_to=1)
    third = broker.log("third", FRUIT, clean_to=6)
    third.delete_records(4)
    broker.cleaner.start()
    while broker.clean_to(log) is None:
        broker.step()
    assert (bases_of(third), broker.clean_to(other)) == ([3, 6], 1)


def test_an_error_while_old_segments_are_deleted_leaves_that_log_alone(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = broker.log("fruit", FRUIT, clean_to=6), broker.log("other", FRUIT, clean_to=6)

    def fail() -> int:
        raise ValueError("a bug")

    monkeypatch.setattr(log, "delete_old_segments", fail)
    other.delete_records(4)
    broker.start()
    assert broker.cleaner.uncleanable(broker.root) == {log.topic_partition}
    assert (bases_of(other), broker.cleaner.state_of(log.topic_partition)) == ([3, 6], None)


@behaviour("CLN-067")
def test_a_partition_that_is_removed_loses_its_checkpoint(broker: Broker) -> None:
    log, other = broker.log("fruit", FRUIT), broker.log("other", FRUIT)
    broker.start()
    assert broker.clean_to(log, other) == [6, 6]
    del broker.logs[log.topic_partition]
    broker.cleaner.abort(log.topic_partition)
    broker.cleaner.update_checkpoint(broker.root, remove=log.topic_partition)
    assert broker.clean_to(log, other) == [None, 6]


# -- aborted -----------------------------------------------------------------------------------------------------------


@behaviour("CLN-077", "CLN-078")
@pytest.mark.parametrize("steps", range(1, 6))
def test_a_round_that_is_aborted_is_gone_at_once(broker: Broker, steps: int) -> None:
    log = under_way(broker, steps=steps)
    broker.cleaner.abort_and_pause(log.topic_partition)
    assert broker.cleaner.state_of(log.topic_partition) == Paused(1)
    assert broker.cleaner.running is None
    assert not half_written(log)
    assert broker.clean_to(log) is None
    broker.back_off()
    assert broker.clean_to(log) is None
    broker.cleaner.resume([log.topic_partition])
    broker.back_off()
    assert (kept(log), broker.clean_to(log)) == (CLEAN_FRUIT, 6)


def test_rounds_are_aborted_where_something_is_written(broker: Broker) -> None:
    assert half_written(under_way(broker, steps=3))


def test_a_log_can_be_truncated_in_the_middle_of_its_round(broker: Broker) -> None:
    log = under_way(broker)
    broker.cleaner.abort_and_pause(log.topic_partition)
    log.truncate_to(4)
    broker.cleaner.truncate_checkpoint(broker.root, log.topic_partition, 4)
    broker.cleaner.resume([log.topic_partition])
    write(log, "c d")
    broker.back_off()
    assert (kept(log), broker.clean_to(log)) == ("b2 a3 c4 d5", 5)


def test_a_topic_that_is_no_longer_compacted_is_aborted_and_left(broker: Broker) -> None:
    log = under_way(broker)
    log.config = replace(log.config, cleanup_policy=("delete",))
    broker.cleaner.abort(log.topic_partition)
    assert broker.cleaner.state_of(log.topic_partition) is None
    broker.back_off()
    assert kept(log) == "a0 a1 b2 a3 b4 b5 c6"


def test_a_log_that_was_truncated_behind_the_cleaners_back_is_cleaned_at_the_next_look(broker: Broker) -> None:
    log = under_way(broker)
    log.truncate_to(5)
    write(log, "c d")
    broker.schedule.run_due()
    assert (broker.cleaner.state_of(log.topic_partition), half_written(log)) == (None, False)
    assert broker.cleaner.uncleanable(broker.root) == frozenset()
    broker.back_off()
    assert (kept(log), broker.clean_to(log)) == ("a3 b4 c5 d6", 6)


@behaviour("CLN-076")
def test_a_log_that_is_being_compacted_is_not_for_the_retention_pass(broker: Broker) -> None:
    log = under_way(broker)
    log.config = replace(log.config, cleanup_policy=("delete",))
    assert broker.cleaner.pause_retention_logs() == []
    broker.schedule.run_due()
    assert broker.cleaner.pause_retention_logs() == [(log.topic_partition, log)]


def test_a_cleaner_that_is_closed_gives_up_its_round_and_looks_no_more(broker: Broker) -> None:
    log = under_way(broker)
    tasks = len(broker.schedule)
    for _ in range(2):
        broker.cleaner.close()
    assert len(broker.schedule) == tasks - 1
    assert (broker.cleaner.state_of(log.topic_partition), half_written(log)) == (None, False)
    broker.back_off()
    assert kept(log) == "a0 a1 b2 a3 b4 b5 c6"
    broker.start()
    assert kept(log) == CLEAN_FRUIT


# -- another config ----------------------------------------------------------------------------------------------------


@behaviour("CLN-059", "CLN-088")
def test_a_round_waits_as_the_rate_demands_and_goes_on_at_once_with_a_higher_one() -> None:
    broker = Broker(io_max_bytes_per_second=10)
    log = broker.log("fruit", FRUIT)
    first, second = (segment.size for segment in log.segments[:2])
    broker.cleaner.start()
    broker.step()
    broker.clock.advance(400)
    broker.step()
    wait_ms = (first + second) * 100 - 400
    assert broker.schedule.next_due_in_ms == wait_ms
    broker.pass_time(wait_ms - 1)
    assert not half_written(log)
    tasks = len(broker.schedule)
    broker.cleaner.reconfigure(CleanerConfig(io_max_bytes_per_second=1e9))
    assert (broker.cleaner.throttle.rate_per_s, len(broker.schedule)) == (1e9, tasks)
    broker.schedule.run_due()
    assert (kept(log), broker.clean_to(log)) == (CLEAN_FRUIT, 6)


@behaviour("CLN-068")
def test_memory_can_be_changed_while_the_cleaner_runs() -> None:
    broker = Broker(dedupe_buffer_size=24 * 4, load_factor=0.5)  # two keys
    log = broker.log("log", FOUR_KEYS)
    broker.cleaner.start()
    broker.step()
    broker.cleaner.reconfigure(CleanerConfig(threads=2, dedupe_buffer_size=2 * 24 * 16, load_factor=0.5))
    broker.step(4)
    assert broker.cleaner.last_rounds[log.topic_partition].stats.keys == 2  # of the round that was under way
    assert broker.clean_to(log) == 2
    broker.schedule.run_due()
    assert broker.cleaner.last_rounds[log.topic_partition].stats.keys == 4
    assert (kept(log), broker.clean_to(log)) == ("a4 b5 c6 d7 e8", 8)


@behaviour("CLN-068")
def test_a_new_config_ends_the_sleep_of_the_cleaner_and_sets_the_next(broker: Broker) -> None:
    log = broker.log("fruit", "a")
    broker.start()
    write(log, "a ")
    broker.cleaner.reconfigure(CleanerConfig(backoff_ms=77))
    broker.schedule.run_due()
    assert (kept(log), broker.schedule.next_due_in_ms) == ("a1", 77)


def test_a_change_of_threads_that_kafka_refuses_changes_nothing(broker: Broker) -> None:
    with pytest.raises(InvalidConfigError):
        broker.cleaner.reconfigure(CleanerConfig(threads=3, backoff_ms=1, io_max_bytes_per_second=1))
    assert (broker.cleaner.config.backoff_ms, broker.cleaner.throttle.rate_per_s > 1) == (15_000, True)


def test_a_cleaner_that_was_not_started_is_not_started_by_a_new_config(broker: Broker) -> None:
    before = len(broker.schedule)
    broker.cleaner.reconfigure(CleanerConfig(threads=2))
    assert len(broker.schedule) == before
