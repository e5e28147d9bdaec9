"""The checkpoints of the cleaner: one entry changes, the others stay; what the disk refuses fails the root, once."""

import errno
import os

import pytest

from tests.behaviours import behaviour
from tests.log.compaction.cleaners import Broker
from tidelog.errors import InvalidRequestError, TooManyFilesError
from tidelog.log import UnifiedLog
from tidelog.log.compaction.cleaner_config import CleanerConfig
from tidelog.log.compaction.log_cleaner import LogCleaner
from tidelog.log.files import write_atomically
from tidelog.log.names import CLEANER_CHECKPOINT, TopicPartition

GONE = TopicPartition("gone", 7)


@pytest.fixture
def broker() -> Broker:
    return Broker(roots=2)


def two_logs(broker: Broker) -> tuple[UnifiedLog, UnifiedLog]:
    return broker.log("one", "aaaa b", clean_to=1), broker.log("two", "aaaa b", clean_to=2)


@behaviour("CLN-079")
def test_an_entry_is_added_changed_and_removed_and_the_others_stay(broker: Broker) -> None:
    one, two = two_logs(broker)
    assert broker.text_of_checkpoint() == "0\n2\none 0 1\ntwo 0 2\n"
    broker.cleaner.update_checkpoint(broker.root, add=(one.topic_partition, 4))
    assert broker.text_of_checkpoint() == "0\n2\none 0 4\ntwo 0 2\n"
    broker.cleaner.update_checkpoint(broker.root, remove=two.topic_partition)
    assert broker.text_of_checkpoint() == "0\n1\none 0 4\n"
    assert broker.clean_to(one, two) == [4, None]


@behaviour("CLN-067")
def test_entries_of_partitions_that_are_no_more_go_with_the_next_change(broker: Broker) -> None:
    one, two = two_logs(broker)
    broker.files[broker.root].write({one.topic_partition: 1, two.topic_partition: 2, GONE: 3})
    del broker.logs[two.topic_partition]
    broker.cleaner.update_checkpoint(broker.root)
    assert broker.text_of_checkpoint() == "0\n1\none 0 1\n"


@behaviour("CLN-080")
def test_a_root_that_fails_takes_its_own_checkpoints_along_only(broker: Broker) -> None:
    one, other = broker.log("one", "aaaa b", clean_to=1), broker.log("other", "aaaa b", root=1, clean_to=2)
    before = broker.text_of_checkpoint()
    broker.cleaner.root_failed(broker.root)
    assert broker.cleaner.first_dirty_offsets == {other.topic_partition: 2}
    broker.cleaner.update_checkpoint(broker.root, add=(one.topic_partition, 4))
    broker.cleaner.truncate_checkpoint(broker.root, one.topic_partition, 0)
    assert broker.text_of_checkpoint() == before
    found = broker.cleaner.grab_filthiest()
    assert found is not None
    assert found.log is other
    assert broker.cleaner.grab_filthiest() is None


@behaviour("CLN-081")
def test_a_truncation_lowers_an_entry_that_is_above_and_no_other(broker: Broker) -> None:
    one, two = broker.log("one", "aaaa b", clean_to=3), broker.log("two", "aaaa b", clean_to=3)
    for offset, expected in ((1000, 3), (3, 3), (2, 2), (0, 0)):
        broker.cleaner.truncate_checkpoint(broker.root, one.topic_partition, offset)
        assert broker.clean_to(one, two) == [expected, 3]
    without = broker.log("without", "aaaa b")
    broker.cleaner.truncate_checkpoint(broker.root, without.topic_partition, 0)
    assert broker.clean_to(without) is None


@behaviour("CLN-081")
def test_a_log_that_is_truncated_while_it_is_not_compacted_must_not_seem_clean_later(broker: Broker) -> None:
    log = broker.log("log", "aaaa b", clean_to=4, cleanup_policy=("delete",))
    broker.cleaner.truncate_checkpoint(broker.root, log.topic_partition, 1)
    assert broker.clean_to(log) == 1


@behaviour("CLN-082")
def test_the_entry_of_a_partition_moves_with_it(broker: Broker) -> None:
    one, two = two_logs(broker)
    broker.cleaner.mark_uncleanable(broker.root, one.topic_partition, why := ValueError("broken"))
    broker.cleaner.move_checkpoint(one.topic_partition, *broker.roots)
    assert [broker.text_of_checkpoint(0), broker.text_of_checkpoint(1)] == ["0\n1\ntwo 0 2\n", "0\n1\none 0 1\n"]
    assert [broker.cleaner.uncleanable(root) for root in broker.roots] == [frozenset(), {one.topic_partition}]
    assert broker.cleaner.why_uncleanable(broker.roots[1], one.topic_partition) is why
    broker.cleaner.root_failed(broker.roots[1])
    assert broker.cleaner.first_dirty_offsets == {two.topic_partition: 2}


def test_a_partition_without_an_entry_moves_without_one(broker: Broker) -> None:
    log = broker.log("log", "aaaa b")
    broker.cleaner.move_checkpoint(log.topic_partition, *broker.roots)
    assert broker.cleaner.first_dirty_offsets == {}


def test_a_path_that_is_no_root_is_refused(broker: Broker) -> None:
    for call in (
        lambda: broker.cleaner.update_checkpoint("/nowhere", remove=GONE),
        lambda: broker.cleaner.truncate_checkpoint("/nowhere", GONE, 0),
        lambda: broker.cleaner.move_checkpoint(GONE, "/nowhere", broker.root),
    ):
        with pytest.raises(InvalidRequestError, match="/nowhere is no root that the cleaner knows"):
            call()


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_what_the_disk_refuses_fails_the_root_once_and_no_other(broker: Broker) -> None:
    one, _ = two_logs(broker)
    other = broker.log("other", "aaaa b", root=1)
    broker.disk.fail(operation="rename", path="*/cleaner-offset-checkpoint*")
    for _ in range(2):
        broker.cleaner.update_checkpoint(broker.root, add=(one.topic_partition, 4))
    [(root, error)] = broker.failures
    assert (root, "the disk is full" in str(error)) == (broker.root, True)
    broker.disk.heal()
    broker.cleaner.update_checkpoint(broker.roots[1], add=(other.topic_partition, 4))
    assert broker.cleaner.first_dirty_offsets == {other.topic_partition: 4}


def test_a_root_that_failed_is_not_touched_whatever_the_owner_of_the_logs_does(broker: Broker) -> None:
    one, _ = two_logs(broker)
    told: list[str] = []
    cleaner = LogCleaner(
        broker.logs, broker.files, CleanerConfig(), broker.clock, broker.schedule, lambda root, _: told.append(root)
    )
    broker.disk.fail(operation="rename", path="*/cleaner-offset-checkpoint*")
    cleaner.update_checkpoint(broker.root, add=(one.topic_partition, 4))
    broker.disk.heal()
    cleaner.update_checkpoint(broker.root, add=(one.topic_partition, 4))
    assert (told, broker.clean_to(one), cleaner.grab_filthiest()) == ([broker.root], 1, None)


@behaviour("CKP-007")
def test_a_checkpoint_that_is_none_fails_its_root_and_the_logs_of_others_are_cleaned(broker: Broker) -> None:
    broker.log("one", "aaaa b")
    broker.log("two", "aaaa b")
    other = broker.log("other", "ab c", root=1)
    write_atomically(broker.fs, f"{broker.root}/{CLEANER_CHECKPOINT}", b"1\n0\n")
    found = broker.cleaner.grab_filthiest()
    assert found is not None
    assert found.log is other
    [(root, error)] = broker.failures
    assert root == broker.root
    assert "version 1 of a checkpoint" in str(error)


def test_a_lack_of_file_descriptors_fails_nothing_and_is_told(broker: Broker) -> None:
    one, _ = two_logs(broker)
    broker.disk.fail(error=os.strerror(errno.EMFILE), operation="open", path="*.tmp")
    for call in (
        lambda: broker.cleaner.update_checkpoint(broker.root, add=(one.topic_partition, 4)),
        lambda: broker.cleaner.truncate_checkpoint(broker.root, one.topic_partition, 0),
    ):
        with pytest.raises(TooManyFilesError):
            call()
    assert broker.failures == []
    broker.disk.heal()
    assert broker.clean_to(one) == 1
