"""Which log the cleaner takes next, what it leaves alone, and how cleaning, retention and truncation keep apart."""

from dataclasses import replace
from typing import Any

import pytest

from tests.behaviours import behaviour
from tests.log.compaction.cleaners import Broker, write
from tidelog.errors import CorruptionError, InvalidRequestError, StorageError
from tidelog.log import UnifiedLog
from tidelog.log.compaction.cleaner_states import ABORTED, IN_PROGRESS, CleaningStates, Paused
from tidelog.log.names import TopicPartition
from tidelog.log.segment import LogSegment

POLICIES = {"delete": ("delete",), "compact": ("compact",), "both": ("compact", "delete"), "none": ()}
ONE_LOG = TopicPartition("wishing-well", 0)


@pytest.fixture
def broker() -> Broker:
    return Broker()


def three_logs(broker: Broker) -> tuple[UnifiedLog, UnifiedLog, UnifiedLog]:
    """Twenty records that are clean, and none, five and ten that are not."""
    clean = "abcde fghij klmno pqrst "
    return (
        broker.log("tidy", clean, clean_to=20),
        broker.log("dusty", clean + "abcde ", clean_to=20),
        broker.log("filthy", clean + "abcde abcde ", clean_to=20),
    )


def grabbed(broker: Broker) -> str | None:
    """The topic of the log that the cleaner would begin with."""
    found = broker.cleaner.grab_filthiest()
    return None if found is None else found.topic_partition.topic


def set_policy(log: UnifiedLog, name: str) -> None:
    log.config = replace(log.config, cleanup_policy=POLICIES[name])


# -- the filthiest -----------------------------------------------------------------------------------------------------


@behaviour("CLN-070")
def test_the_log_with_the_highest_share_of_dirty_bytes_is_taken_first(broker: Broker) -> None:
    three_logs(broker)
    assert [grabbed(broker) for _ in range(3)] == ["filthy", "dusty", None]


@behaviour("CLN-070")
def test_uncleanable_logs_are_not_taken(broker: Broker) -> None:
    _, dusty, filthy = three_logs(broker)
    broker.cleaner.mark_uncleanable(broker.root, filthy.topic_partition)
    assert grabbed(broker) == "dusty"
    broker.cleaner.done_cleaning(dusty.topic_partition, broker.root, 20)
    broker.cleaner.mark_uncleanable(broker.root, dusty.topic_partition)
    assert grabbed(broker) is None


@behaviour("CLN-070")
def test_paused_logs_are_not_taken(broker: Broker) -> None:
    _, dusty, filthy = three_logs(broker)
    broker.cleaner.abort_and_pause(filthy.topic_partition)
    assert grabbed(broker) == "dusty"
    broker.cleaner.resume([filthy.topic_partition])
    assert grabbed(broker) == "filthy"


def test_logs_without_compaction_are_not_taken(broker: Broker) -> None:
    _, dusty, filthy = three_logs(broker)
    set_policy(filthy, "delete")
    set_policy(dusty, "both")
    assert [grabbed(broker), grabbed(broker)] == ["dusty", None]


@behaviour("CLN-071")
def test_a_checkpoint_beyond_the_log_end_makes_the_whole_log_dirty(broker: Broker) -> None:
    log = broker.log("log", "abcde fghij klmno pqrst ", clean_to=200)
    found = broker.cleaner.grab_filthiest()
    assert found is not None
    assert found.first_dirty == 0
    assert broker.clean_to(log) == 0


@behaviour("CLN-072")
def test_a_checkpoint_below_the_log_start_is_raised_to_it(broker: Broker) -> None:
    log = broker.log("log", "abcde fghij klmno pqrst ", clean_to=0)
    log.delete_records(10)
    found = broker.cleaner.grab_filthiest()
    assert found is not None
    assert found.first_dirty == 10
    assert broker.clean_to(log) == 10


@behaviour("CLN-073")
@pytest.mark.parametrize(("log_start", "clean_to"), [(2, 0), (0, 3), (0, None)])
def test_a_log_with_only_an_active_segment_is_never_taken(broker: Broker, log_start: int, clean_to: int | None) -> None:
    broker.log("log", "abcdef", clean_to=clean_to, min_cleanable_dirty_ratio=0.0).delete_records(log_start)
    assert grabbed(broker) is None


def test_an_empty_log_is_never_taken(broker: Broker) -> None:
    broker.log("log", "", min_cleanable_dirty_ratio=0.0)
    assert grabbed(broker) is None


@behaviour("CLN-086")
def test_a_wrong_checkpoint_is_put_right_even_if_the_log_is_not_taken(broker: Broker) -> None:
    first = broker.log("first", "abcde fghij klmno pqrst", clean_to=10)
    other = broker.log("other", "abcde fghij klmno pqrst", clean_to=5)
    first.delete_records(15)
    assert grabbed(broker) == "other"
    assert broker.clean_to(first, other) == [15, 5]
    first.delete_records(20)
    assert grabbed(broker) is None
    assert broker.clean_to(first) == 20


@behaviour("CLN-069")
def test_an_error_while_looking_at_a_log_is_noted_for_that_log_only(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, dusty, filthy = three_logs(broker)
    for log in (dusty, filthy):
        log.config = replace(log.config, min_compaction_lag_ms=1)
    broker.clock.advance(10)
    trouble = CorruptionError("no batch")

    def largest(segment: LogSegment) -> int:
        if segment.log.path.startswith(filthy.directory):
            raise trouble
        return 0

    monkeypatch.setattr(LogSegment, "largest_timestamp_ms", property(largest))
    assert grabbed(broker) == "dusty"
    assert broker.cleaner.uncleanable(broker.root) == {filthy.topic_partition}
    assert broker.cleaner.why_uncleanable(broker.root, filthy.topic_partition) is trouble
    assert broker.failures == []


def test_a_disk_error_while_looking_at_a_log_fails_its_root() -> None:
    broker = Broker(roots=2)
    broker.log("sound", "aaa ")
    log = broker.log("log", "aaa ", min_compaction_lag_ms=1)
    for segment in log.segments:
        segment.max_timestamp = None  # as after a start: it is to be looked up
    broker.log("other", "aaa ", root=1)
    broker.disk.fail(operation="read", path="*/log-0/*.log")
    assert [grabbed(broker), grabbed(broker)] == ["other", None]
    assert [root for root, _ in broker.failures] == [broker.root]
    assert broker.cleaner.uncleanable(broker.root) == frozenset()


def test_a_log_that_is_offline_is_not_looked_at(broker: Broker) -> None:
    broker.log("log", "aaa ").failure = StorageError("the disk is gone")
    assert (grabbed(broker), broker.cleaner.deletable()) == (None, [])


def test_a_log_outside_all_roots_is_left_alone_and_one_can_ask_why(broker: Broker) -> None:
    elsewhere = Broker(roots=2).log("log", "aaa ", root=1)
    broker.logs[elsewhere.topic_partition] = elsewhere
    assert grabbed(broker) is None
    why = broker.cleaner.why_uncleanable("/kafka/root1", elsewhere.topic_partition)
    assert isinstance(why, InvalidRequestError)
    assert str(why) == "/kafka/root1 is no root that the cleaner knows"


def test_each_log_is_judged_by_the_checkpoint_of_its_own_root() -> None:
    broker = Broker(roots=2)
    log = broker.log("log", "abcde fghij ", root=1)
    broker.cleaner.update_checkpoint(broker.roots[0], add=(log.topic_partition, 5))  # left over from a move
    found = broker.cleaner.grab_filthiest()
    assert found is not None
    assert found.first_dirty == 0


def test_what_there_is_to_see_of_a_look(broker: Broker) -> None:
    _, _, filthy = three_logs(broker)
    broker.clock.advance(seconds=5)
    assert broker.cleaner.seconds_since_last_run == 5
    grabbed(broker)
    assert broker.cleaner.seconds_since_last_run == 0
    assert broker.cleaner.max_dirty_percent == 33
    filthy.config = replace(filthy.config, max_compaction_lag_ms=1000)
    broker.cleaner.done_cleaning(filthy.topic_partition, broker.root, 20)
    grabbed(broker)
    assert broker.cleaner.max_compaction_delay_ms == 4000


# -- deletion by the cleaner -------------------------------------------------------------------------------------------


@behaviour("CLN-074")
@pytest.mark.parametrize(("policy", "expected"), [("delete", 0), ("none", 0), ("compact", 1), ("both", 1)])
def test_segments_of_compacted_logs_are_deleted_by_the_cleaner(broker: Broker, policy: str, expected: int) -> None:
    log = broker.log("log", "ab cd", cleanup_policy=POLICIES[policy])
    found = broker.cleaner.deletable()
    assert found == [(log.topic_partition, log)] * expected
    assert broker.cleaner.state_of(log.topic_partition) == (IN_PROGRESS if expected else None)
    broker.cleaner.done_deleting(partition for partition, _ in found)
    assert broker.cleaner.state_of(log.topic_partition) is None


@behaviour("CLN-075")
def test_uncleanable_logs_are_not_deleted_from_either(broker: Broker) -> None:
    log = broker.log("log", "ab cd")
    broker.cleaner.mark_uncleanable(broker.root, log.topic_partition)
    assert broker.cleaner.deletable() == []


@behaviour("CLN-078")
def test_done_deleting_wants_a_deletion_that_was_begun(broker: Broker) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be done with: it is not in the hands of the cleaner"):
        broker.cleaner.done_deleting([ONE_LOG])
    broker.cleaner.abort_and_pause(ONE_LOG)
    with pytest.raises(InvalidRequestError, match="cannot be done with: it is paused 1 times"):
        broker.cleaner.done_deleting([ONE_LOG])
    log = broker.log("log", "ab cd")
    broker.cleaner.deletable()
    broker.cleaner.abort_and_pause(log.topic_partition)
    assert broker.cleaner.state_of(log.topic_partition) is ABORTED
    broker.cleaner.done_deleting([log.topic_partition])
    assert broker.cleaner.state_of(log.topic_partition) == Paused(1)


# -- keeping apart -----------------------------------------------------------------------------------------------------


@behaviour("CLN-076")
def test_a_log_under_retention_is_not_compacted_and_one_under_compaction_is_not_retained(broker: Broker) -> None:
    log = broker.log("log", "a a", cleanup_policy=("delete",), min_cleanable_dirty_ratio=0.0)
    under_retention = broker.cleaner.pause_retention_logs()
    assert under_retention == [(log.topic_partition, log)]
    assert broker.cleaner.pause_retention_logs() == []  # one pass at a time
    set_policy(log, "compact")
    assert grabbed(broker) is None
    broker.cleaner.resume(partition for partition, _ in under_retention)
    assert grabbed(broker) == "log"
    set_policy(log, "delete")
    assert broker.cleaner.pause_retention_logs() == []
    broker.cleaner.done_deleting([log.topic_partition])
    assert broker.cleaner.pause_retention_logs() == [(log.topic_partition, log)]


def test_compacted_logs_are_not_for_the_retention_pass(broker: Broker) -> None:
    for name, policy in POLICIES.items():
        broker.log(name, "a", cleanup_policy=policy)
    assert [partition.topic for partition, _ in broker.cleaner.pause_retention_logs()] == ["delete", "none"]


@behaviour("CLN-077")
def test_truncation_may_pause_a_log_that_retention_has_paused(broker: Broker) -> None:
    log = broker.log("log", "a a", cleanup_policy=("delete",))
    under_retention = [partition for partition, _ in broker.cleaner.pause_retention_logs()]
    broker.cleaner.abort_and_pause(log.topic_partition)
    assert broker.cleaner.state_of(log.topic_partition) == Paused(2)
    broker.cleaner.resume([log.topic_partition])
    assert broker.cleaner.state_of(log.topic_partition) == Paused(1)
    broker.cleaner.resume(under_retention)
    assert broker.cleaner.state_of(log.topic_partition) is None


@behaviour("CLN-077")
def test_a_topic_may_be_deleted_while_retention_has_it_paused(broker: Broker) -> None:
    log = broker.log("log", "a a", cleanup_policy=("delete",))
    under_retention = [partition for partition, _ in broker.cleaner.pause_retention_logs()]
    broker.cleaner.abort(log.topic_partition)
    broker.cleaner.resume(under_retention)
    assert broker.cleaner.state_of(log.topic_partition) is None


@behaviour("CLN-078")
def test_a_clean_that_was_aborted_meanwhile_leaves_the_log_paused_and_its_checkpoint_alone(broker: Broker) -> None:
    log = broker.log("log", "aa b c", clean_to=1)
    assert grabbed(broker) == "log"
    broker.cleaner.abort_and_pause(log.topic_partition)
    assert broker.cleaner.state_of(log.topic_partition) is ABORTED
    broker.cleaner.done_cleaning(log.topic_partition, broker.root, 3)
    assert broker.cleaner.state_of(log.topic_partition) == Paused(1)
    assert broker.clean_to(log) == 1


@behaviour("CLN-078")
def test_a_clean_that_ends_well_leaves_no_state_and_a_checkpoint(broker: Broker) -> None:
    log = broker.log("log", "aa b c")
    with pytest.raises(InvalidRequestError, match="cannot be done with"):
        broker.cleaner.done_cleaning(log.topic_partition, broker.root, 1)
    broker.cleaner.abort_and_pause(log.topic_partition)
    with pytest.raises(InvalidRequestError, match="cannot be done with"):
        broker.cleaner.done_cleaning(log.topic_partition, broker.root, 1)
    assert broker.clean_to(log) is None
    broker.cleaner.resume([log.topic_partition])
    assert grabbed(broker) == "log"
    broker.cleaner.done_cleaning(log.topic_partition, broker.root, 1)
    assert broker.cleaner.state_of(log.topic_partition) is None
    assert broker.clean_to(log) == 1


@pytest.mark.parametrize(
    ("before", "call", "message"),
    [
        ([], "resume", "cannot be resumed: it is not in the hands"),
        (["begin"], "resume", "cannot be resumed: it is in progress"),
        (["begin", "pause"], "resume", "cannot be resumed: it is aborted"),
        (["begin", "pause"], "pause", "cannot be aborted and paused: it is aborted"),
        (["pause", "pause"], "begin", "cannot be begun: it is paused 2 times"),
        (["begin"], "begin", "cannot be begun: it is in progress"),
    ],
)
def test_what_does_not_fit_the_state_is_refused_and_changes_nothing(before: list[str], call: str, message: str) -> None:
    states = CleaningStates()
    for step in before:
        getattr(states, step)(ONE_LOG)
    state = states.get(ONE_LOG)
    with pytest.raises(InvalidRequestError, match=f"the cleaning of wishing-well-0 {message}"):
        getattr(states, call)(ONE_LOG)
    assert states.get(ONE_LOG) == state


# -- uncleanable -------------------------------------------------------------------------------------------------------


def uncleanable(broker: Broker, log: UnifiedLog, root: int = 0) -> Any:
    return log.topic_partition in broker.cleaner.uncleanable(broker.roots[root])


@behaviour("CLN-061")
def test_a_deleted_partition_is_no_longer_uncleanable(broker: Broker) -> None:
    log, other = broker.log("log", "aa b"), broker.log("other", "aa b")
    for each in (log, other):
        broker.cleaner.mark_uncleanable(broker.root, each.topic_partition)
    del broker.logs[log.topic_partition]
    broker.start()
    assert not uncleanable(broker, log)
    assert uncleanable(broker, other)


@behaviour("CLN-061")
def test_a_partition_that_is_created_again_at_once_is_not_uncleanable_either(broker: Broker) -> None:
    log = broker.log("log", "aa b")
    broker.cleaner.mark_uncleanable(broker.root, log.topic_partition)
    broker.cleaner.update_checkpoint(broker.root, remove=log.topic_partition)
    assert not uncleanable(broker, log)
    assert grabbed(broker) == "log"


def test_the_bytes_of_uncleanable_partitions_are_those_that_could_be_cleaned(broker: Broker) -> None:
    log, clean = broker.log("log", "aa bb c", clean_to=2), broker.log("clean", "aa bb c", clean_to=4)
    assert broker.cleaner.uncleanable_bytes(broker.root) == 0
    for each in (log, clean):
        broker.cleaner.mark_uncleanable(broker.root, each.topic_partition)
    assert broker.cleaner.uncleanable_bytes(broker.root) == log.segments[1].size
    write(log, "d e")
    assert broker.cleaner.uncleanable_bytes(broker.root) == log.segments[1].size + log.segments[2].size
