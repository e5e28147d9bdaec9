"""What a read_committed consumer delivers, written as stories: who wrote, who aborted, who committed."""

import itertools
import struct

import pytest

from tidelog.records import (
    AbortedTxn,
    Batch,
    Codec,
    ControlType,
    EndTxnMarker,
    NewRecord,
    build_batch,
    build_control_batch,
    build_end_txn_marker,
    build_message_set,
    committed_batches,
    empty_batch,
    read_batches,
)


class Log:
    """A stretch of log told step by step; every record is one batch at the next offset."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.next_offset = 0

    def write(self, value: str, producer: int | None = None, *, transactional: bool = True, count: int = 1) -> "Log":
        options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0, "is_transactional": transactional}
        self.data += build_batch(
            [NewRecord(None, value.encode(), 0)] * count,
            base_offset=self.next_offset,
            **({} if producer is None else options),
        )
        self.next_offset += count
        return self

    def end(self, control_type: ControlType, producer: int) -> "Log":
        self.data += build_end_txn_marker(
            EndTxnMarker(control_type, 0),
            producer_id=producer,
            producer_epoch=0,
            timestamp_ms=0,
            offset=self.next_offset,
        )
        self.next_offset += 1
        return self

    def abort(self, producer: int) -> "Log":
        return self.end(ControlType.ABORT, producer)

    def commit(self, producer: int) -> "Log":
        return self.end(ControlType.COMMIT, producer)

    def batches(self) -> list[Batch]:
        return list(read_batches(bytes(self.data)))

    def delivered(self, *aborted: tuple[int, int]) -> str:
        """The values a consumer sees, given the aborted transactions as (producer, first offset)."""
        batches = committed_batches(read_batches(self.data), [AbortedTxn(*txn) for txn in aborted])
        return " ".join((record.value or b"").decode() for batch in batches for record in batch)


def test_without_aborted_transactions_everything_but_markers_is_delivered() -> None:
    log = Log().write("a", 1).write("b").commit(1).write("c", 2).commit(2)
    assert log.delivered() == "a b c"


def test_an_aborted_transaction_is_not_delivered() -> None:
    log = Log().write("a").write("x", 1).write("x", 1).abort(1).write("b")
    assert log.delivered((1, 1)) == "a b"


def test_interleaved_transactions_are_told_apart_by_their_producers() -> None:
    log = Log().write("x", 1).write("a", 2).write("x", 1).write("y", 3).write("b", 2).abort(1).write("y", 3)
    log.commit(2).abort(3).write("c")
    assert log.delivered((1, 0), (3, 3)) == "a b c"


def test_after_the_abort_the_same_producer_is_heard_again() -> None:
    log = Log().write("x", 1).abort(1).write("a", 1).commit(1).write("x", 1).abort(1).write("b", 1).commit(1)
    assert log.delivered((1, 0), (1, 4)) == "a b"


def test_a_producer_that_commits_first_and_aborts_later_is_dropped_from_the_abort_on() -> None:
    log = Log().write("a", 1).commit(1).write("x", 1).abort(1)
    assert log.delivered((1, 2)) == "a"


def test_the_list_may_come_in_any_order() -> None:
    log = Log().write("x", 1).write("y", 2).abort(2).write("a", 2).abort(1).commit(2).write("z", 3).abort(3).write("b")
    aborted = [(1, 0), (2, 1), (3, 6)]
    for order in itertools.permutations(aborted):
        assert log.delivered(*order) == "a b"


def test_batches_outside_transactions_are_delivered_even_of_a_producer_that_aborts() -> None:
    log = Log().write("x", 1).write("a", 1, transactional=False).write("b").write("x", 1).abort(1)
    assert log.delivered((1, 0)) == "a b"


def test_a_commit_marker_does_not_end_an_aborted_transaction() -> None:
    """The list is the truth: a transaction named there ends with an ABORT, and other markers say nothing about it."""
    log = Log().write("x", 1).commit(2).write("x", 1).commit(1).write("x", 1).abort(1).write("a", 1)
    assert log.delivered((1, 0)) == "a"


def test_a_transaction_is_active_from_the_batch_that_holds_its_first_offset() -> None:
    log = Log().write("a", 1, count=3).write("x", 1, count=3).abort(1)
    assert log.delivered((1, 3)) == "a a a"
    assert log.delivered((1, 5)) == "a a a"  # inside the second batch: the whole batch goes
    assert log.delivered((1, 2)) == ""
    assert log.delivered((1, 6)) == "a a a x x x"


def test_a_fetch_that_begins_inside_a_transaction_is_told_of_its_beginning() -> None:
    log = Log().write("x", 1).write("x", 1).write("a").abort(1)
    later = log.batches()[1:]
    values = [r.value for b in committed_batches(later, [AbortedTxn(1, 0)]) for r in b]
    assert values == [b"a"]


def test_a_transaction_whose_marker_is_beyond_the_fetch_stays_hidden() -> None:
    assert Log().write("a").write("x", 1).write("x", 1).delivered((1, 1)) == "a"


def test_control_batches_are_never_delivered() -> None:
    log = Log().write("a", 1).commit(1).abort(1)
    log.data += build_control_batch([(ControlType.LEADER_CHANGE, b"")], timestamp_ms=0, partition_leader_epoch=1)
    marker = log.batches()[1]
    log.data += empty_batch(base_offset=9, last_offset=9, max_timestamp_ms=0, attributes=marker.attributes)
    assert [batch.is_control for batch in log.batches()] == [False, True, True, True, True]
    for aborted in ([], [AbortedTxn(1, 0)], [AbortedTxn(7, 0)]):
        assert not any(batch.is_control for batch in committed_batches(log.batches(), aborted))


def test_messages_of_old_formats_are_delivered() -> None:
    log = bytearray()
    for magic, codec in [(0, Codec.NONE), (0, Codec.GZIP), (1, Codec.NONE), (1, Codec.LZ4)]:
        log += build_message_set(magic, [NewRecord(None, b"old")], codec=codec)
    assert len(list(committed_batches(read_batches(log), [AbortedTxn(-1, 0)]))) == 4


def test_batches_are_asked_for_one_by_one() -> None:
    log = Log().write("a", 1).commit(1).write("b", 1)
    asked = []
    batches = committed_batches((asked.append(batch) or batch for batch in log.batches()), [])
    next(batches)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("key", "value", "delivered"),
    [
        pytest.param(struct.pack(">hh", 0, 7), b"", "a", id="a type of a later release ends nothing"),
        pytest.param(ControlType.SNAPSHOT_FOOTER.to_key(), b"", "a", id="nor does a type of the quorum"),
        pytest.param(ControlType.ABORT.to_key(), b"", "a b", id="an abort is told by its key"),
    ],
)
def test_the_key_of_a_control_record_is_all_that_a_consumer_reads(key: bytes, value: bytes, delivered: str) -> None:
    log = Log().write("a").write("x", 1)
    log.data += build_batch(
        [NewRecord(key, value)],
        base_offset=2,
        producer_id=1,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    log.next_offset = 3
    assert log.write("b", 1).delivered((1, 1)) == delivered
