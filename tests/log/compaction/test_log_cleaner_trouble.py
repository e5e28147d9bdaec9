"""What becomes of rounds that cannot be ended: the log is left alone, or its root fails, and the others are cleaned."""

import errno
import os
from collections.abc import Generator

import pytest

from tests.behaviours import behaviour
from tests.log.compaction.cleaners import CLEAN_FRUIT, FRUIT, Broker, half_written, kept, spoil, under_way, write
from tidelog.errors import CorruptRecordError
from tidelog.log.compaction.cleanable import CleanableLog
from tidelog.log.compaction.cleaner import CleanedRound, CleanerStats
from tidelog.log.compaction.cleaner_states import IN_PROGRESS, Paused

MANY_FILES = os.strerror(errno.EMFILE)


@pytest.fixture
def broker() -> Broker:
    return Broker()


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@behaviour("CLN-060")
def test_a_corrupt_log_is_left_alone_and_the_others_are_cleaned(broker: Broker) -> None:
    corrupt, sound = broker.log("corrupt", "aaa bbb c"), broker.log("sound", FRUIT, clean_to=1)
    spoil(corrupt, 3)
    broker.start()
    broker.back_off()
    assert (kept(sound), broker.clean_to(corrupt, sound)) == (CLEAN_FRUIT, [None, 6])
    assert broker.cleaner.uncleanable(broker.root) == {corrupt.topic_partition}
    assert isinstance(broker.cleaner.why_uncleanable(broker.root, corrupt.topic_partition), CorruptRecordError)
    assert broker.cleaner.uncleanable_bytes(broker.root) == sum(segment.size for segment in corrupt.segments[:2])
    assert (broker.failures, half_written(corrupt)) == ([], False)
    write(sound, "a ")
    broker.back_off()
    assert kept(sound) == "b5 c6 a7"


@behaviour("CLN-060")
def test_a_log_that_was_left_alone_is_tried_again_after_a_restart(broker: Broker) -> None:
    log = broker.log("fruit", FRUIT)
    spoil(log, 3)
    broker.start()
    spoil(log, 3)  # which mends it
    broker.back_off()
    assert broker.clean_to(log) is None
    broker.cleaner.close()
    broker.cleaner = broker.new_cleaner()
    broker.start()
    assert (kept(log), broker.clean_to(log)) == (CLEAN_FRUIT, 6)


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        ("open", "*/root0/*.cleaned"),
        ("write", "*/root0/*.cleaned"),
        ("rename", "*/root0/*.cleaned"),
        ("read", "*/root0/*.log"),
    ],
)
def test_what_the_disk_refuses_in_a_round_fails_its_root_once_and_no_other(operation: str, path: str) -> None:
    broker = Broker(roots=2)
    bad, good = broker.log("bad", FRUIT), broker.log("good", FRUIT, root=1, clean_to=1)
    broker.disk.fail(operation=operation, path=path)
    broker.start()
    broker.back_off()
    assert [root for root, _ in broker.failures] == [broker.root]
    assert (kept(good), broker.clean_to(good)) == (CLEAN_FRUIT, 6)
    assert broker.cleaner.state_of(bad.topic_partition) is None
    assert broker.cleaner.uncleanable(broker.root) == frozenset()


def test_a_root_that_fails_elsewhere_takes_the_round_in_it_along(broker: Broker) -> None:
    log = under_way(broker)
    broker.disk.fail(path="*/root0/*")  # also for what is to be removed
    broker.cleaner.root_failed(broker.root)
    assert (broker.cleaner.running, broker.cleaner.state_of(log.topic_partition)) == (None, None)
    broker.disk.heal()
    broker.back_off()
    assert broker.clean_to(log) is None


def test_a_root_that_fails_leaves_the_round_in_another_alone() -> None:
    broker = Broker(roots=2)
    log = under_way(broker)
    broker.cleaner.root_failed(broker.roots[1])
    assert broker.cleaner.state_of(log.topic_partition) is IN_PROGRESS
    broker.schedule.run_due()
    assert kept(log) == CLEAN_FRUIT


def test_a_checkpoint_that_cannot_be_written_fails_the_root(broker: Broker) -> None:
    broker.log("fruit", FRUIT)
    broker.disk.fail(operation="rename", path="*/cleaner-offset-checkpoint*")
    broker.start()
    assert [root for root, _ in broker.failures] == [broker.root]


@pytest.mark.parametrize("path", ["*.cleaned", "*/cleaner-offset-checkpoint", "*/cleaner-offset-checkpoint.tmp"])
def test_a_lack_of_file_descriptors_is_waited_out(broker: Broker, path: str) -> None:
    log = broker.log("fruit", FRUIT, clean_to=0)
    broker.disk.fail(error=MANY_FILES, operation="open", path=path)
    broker.start()
    broker.back_off()
    broker.disk.heal()
    assert (broker.failures, broker.clean_to(log)) == ([], 0)
    assert broker.cleaner.uncleanable(broker.root) == frozenset()
    broker.back_off()
    assert (kept(log), broker.clean_to(log)) == (CLEAN_FRUIT, 6)


def test_whoever_interrupts_a_heartbeat_leaves_a_cleaner_that_goes_on(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = under_way(broker)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(log, "replace_segments", interrupt)
        with pytest.raises(KeyboardInterrupt):
            broker.schedule.run_due()
    assert (broker.cleaner.state_of(log.topic_partition), broker.cleaner.running) == (None, None)
    broker.back_off()
    assert (kept(log), broker.clean_to(log)) == (CLEAN_FRUIT, 6)


# -- calls from inside -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends_at_once", [True, False])
def test_a_round_may_be_aborted_by_what_it_does(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, ends_at_once: bool
) -> None:
    log = broker.log("fruit", FRUIT)
    events: list[str] = []

    def clean(cleanable: CleanableLog, *, stats: CleanerStats) -> Generator[None, None, CleanedRound]:
        broker.cleaner.abort_and_pause(log.topic_partition)
        events.append(str(broker.cleaner.state_of(log.topic_partition)))
        try:
            if not ends_at_once:
                yield
                events.append("went on")
            return CleanedRound(6, stats)
        finally:
            events.append("closed")

    monkeypatch.setattr(broker.cleaner._cleaner, "clean", clean)
    broker.start()
    assert events == ["paused 1 times", "closed"]
    assert (broker.cleaner.running, broker.clean_to(log)) == (None, None)
    assert broker.schedule.next_due_in_ms == broker.cleaner.config.backoff_ms
    assert broker.cleaner.state_of(log.topic_partition) == Paused(1)


def test_a_round_that_gets_nowhere_is_not_repeated_at_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.log("fruit", FRUIT)
    rounds: list[int] = []

    def clean(cleanable: CleanableLog, *, stats: CleanerStats) -> Generator[None, None, CleanedRound]:
        rounds.append(cleanable.first_dirty)
        assert len(rounds) < 3
        yield
        return CleanedRound(cleanable.first_dirty, stats)

    monkeypatch.setattr(broker.cleaner._cleaner, "clean", clean)
    broker.start()
    assert rounds == [0]
    broker.back_off()
    assert rounds == [0, 0]


def test_a_log_may_be_aborted_while_its_segments_are_deleted(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    log = broker.log("fruit", FRUIT, clean_to=6)
    monkeypatch.setattr(log, "delete_old_segments", lambda: broker.cleaner.abort_and_pause(log.topic_partition))
    broker.start()
    assert broker.cleaner.state_of(log.topic_partition) == Paused(1)


def test_a_cleaner_may_be_closed_from_inside_a_turn(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    log, other = broker.log("fruit", FRUIT), broker.log("other", FRUIT, clean_to=1)
    third = broker.log("third", FRUIT, clean_to=6)
    monkeypatch.setattr(third, "delete_old_segments", broker.cleaner.close)
    broker.start()
    assert broker.clean_to(log, other) == [6, 1]
    broker.back_off()
    assert broker.clean_to(other) == 1
