"""Transactions in a log: what they hold back, what their markers do, and the proof that a coordinator knows of them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.log.logs import (
    ABORT,
    CLIENT,
    COMMIT,
    COORDINATOR,
    a_log,
    all_replicated,
    bases_of,
    batch,
    end_txn,
    follow,
    in_txn,
    lead,
    marker,
    of_producer,
    opened_again,
)
from tidelog.errors import CoordinatorFencedError, InvalidProducerEpochError, InvalidTxnStateError
from tidelog.log import AppendOrigin, UnifiedLog
from tidelog.log.transaction_index import AbortedTxnEntry
from tidelog.log.verification import NO_GUARD, VerificationGuard
from tidelog.records import ControlType

PRODUCER = 23


# -- the first unstable offset -----------------------------------------------------------------------------------------


@behaviour("LOG-109")
def test_without_transactions_nothing_is_unstable(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, of_producer(1, 0, 3))
    lead(log, 2)
    assert log.first_unstable_offset is None


@behaviour("LOG-110")
def test_a_transaction_is_unstable_from_its_first_batch_until_its_marker_is_replicated(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 2)
    lead(log, in_txn(137, 0, 3, epoch=5))
    assert log.first_unstable_offset == 2
    lead(log, in_txn(137, 3, 1, epoch=5))
    assert log.first_unstable_offset == 2
    marker_offset = end_txn(log, 137, ABORT, epoch=5).last_offset
    assert log.first_unstable_offset == 2
    log.update_high_watermark(marker_offset)
    assert log.first_unstable_offset == 2
    log.update_high_watermark(marker_offset + 1)
    assert log.first_unstable_offset is None


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
@behaviour("LOG-045")
def test_an_ended_transaction_is_stable_after_a_crash_as_well(tmp_path: Path, kind: ControlType) -> None:
    log = a_log(tmp_path)
    lead(log, in_txn(137, 0, 3, epoch=5))
    end_txn(log, 137, kind, epoch=5)
    all_replicated(log)
    assert log.first_unstable_offset is None
    again = opened_again(log)
    all_replicated(again)
    assert again.first_unstable_offset is None


@behaviour("LOG-116")
def test_what_is_unstable_begins_no_earlier_than_the_log(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, in_txn(1, 0, 5))
    lead(log, 3)
    log.roll()
    lead(log, in_txn(1, 5, 5))
    all_replicated(log)
    assert log.first_unstable_offset == 0
    log.delete_records(5)
    assert (log.first_unstable_offset, log.last_stable_offset) == (5, 5)
    log.delete_records(8)
    log.delete_old_segments()
    assert bases_of(log) == [8]
    assert (log.first_unstable_offset, log.last_stable_offset) == (8, 8)


Appends = list[Callable[[int], bytes | bytearray]]


def interleaved() -> Appends:
    """Transactions of four producers and plain records between them, each for the offset it is to have."""
    sequences = dict.fromkeys((1, 2, 3, 4), 0)

    def data(producer_id: int, count: int) -> Callable[[int], bytearray]:
        sequence = sequences[producer_id]
        sequences[producer_id] += count
        return lambda offset: in_txn(producer_id, sequence, count, base_offset=offset, partition_leader_epoch=0)

    def plain(count: int) -> Callable[[int], bytearray]:
        return lambda offset: batch(count, base_offset=offset, partition_leader_epoch=0)

    def end(producer_id: int, kind: ControlType) -> Callable[[int], bytearray]:
        return lambda offset: marker(producer_id, kind, offset=offset)

    return [
        data(1, 5), plain(3), data(2, 2), data(1, 4), data(3, 3), plain(2), data(1, 10), end(1, ABORT),
        data(2, 6), data(4, 3), plain(10), data(3, 9), end(3, COMMIT), data(4, 8), data(2, 7), end(2, ABORT),
        plain(10), data(4, 4), end(4, COMMIT),
    ]  # fmt: skip


def lead_all(log: UnifiedLog, appends: Appends) -> None:
    for build in appends:
        lead(log, build(0), origin=COORDINATOR if build(0)[22] & 0x20 else CLIENT)


def follow_all(log: UnifiedLog, appends: Appends) -> None:
    offset, parts = 0, []
    for build in appends:
        parts.append(build(offset))
        offset += int.from_bytes(parts[-1][57:61], "big")
    follow(log, *parts)


@pytest.mark.parametrize("append", [lead_all, follow_all])
@behaviour("LOG-112", "LOG-113")
def test_leader_and_follower_index_the_same_aborted_transactions(
    tmp_path: Path, append: Callable[[UnifiedLog, Appends], None]
) -> None:
    log = a_log(tmp_path)
    append(log, interleaved())
    assert log.log_end_offset == 90
    assert [*log.local.collect_aborted(0, 90)] == [AbortedTxnEntry(1, 0, 29, 8), AbortedTxnEntry(2, 8, 74, 36)]

    for high_watermark, unstable in ((30, 8), (75, 36)):
        log.update_high_watermark(high_watermark)
        place = log.producers.first_unstable
        assert place is not None
        assert place.offset == log.first_unstable_offset == unstable
        assert not place.is_offset_only
        assert place == log.local.locate(unstable) == log.offsets().last_stable_offset
    all_replicated(log)
    assert log.first_unstable_offset is None


# -- markers -----------------------------------------------------------------------------------------------------------


@behaviour("LOG-114")
def test_a_marker_of_an_older_coordinator_is_refused(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, in_txn(1, 0, 10))
    end_txn(log, 1, ABORT, coordinator_epoch=1)
    lead(log, in_txn(1, 10, 5))
    end_txn(log, 1, COMMIT, coordinator_epoch=2)
    with pytest.raises(CoordinatorFencedError) as refusal:
        end_txn(log, 1, ABORT, coordinator_epoch=1)
    assert refusal.value.error_code == 52


@behaviour("LOG-114")
def test_a_marker_of_an_older_coordinator_is_refused_behind_an_empty_transaction(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    follow(log, in_txn(1, 0, 10, partition_leader_epoch=0), marker(1, COMMIT, offset=10))
    for _ in range(2):
        end_txn(log, 1, ABORT, coordinator_epoch=2)
    with pytest.raises(CoordinatorFencedError):
        end_txn(log, 1, ABORT, coordinator_epoch=1)
    assert log.log_end_offset == 13


@behaviour("LOG-115")
def test_a_marker_of_an_older_producer_epoch_is_refused(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    end_txn(log, 1, ABORT, epoch=5, coordinator_epoch=1)
    with pytest.raises(InvalidProducerEpochError) as refusal:
        end_txn(log, 1, ABORT, epoch=4, coordinator_epoch=1)
    assert refusal.value.error_code == 47


# -- verification ------------------------------------------------------------------------------------------------------


def has_open_txn(log: UnifiedLog) -> bool:
    entry = log.producers.last_entry(PRODUCER)
    return entry is not None and entry.txn_first_offset is not None


@pytest.mark.parametrize("origin", [CLIENT, COORDINATOR])
@behaviour("LOG-123", "LOG-124", "LOG-125")
def test_a_guard_lives_until_a_transaction_begins_with_it_or_ends(tmp_path: Path, origin: AppendOrigin) -> None:
    log = a_log(tmp_path, verification=True)
    sequence = 3 if origin is CLIENT else 0
    behind = sequence + 2 if origin is CLIENT else 0
    assert log.producers.guard_of(PRODUCER) is NO_GUARD

    guard = log.producers.maybe_start_verification(PRODUCER, behind, 1)
    assert guard is not NO_GUARD
    lead(log, of_producer(PRODUCER, sequence, 2, epoch=1), origin=origin)
    assert not has_open_txn(log)
    assert log.producers.guard_of(PRODUCER) is guard

    lead(log, in_txn(PRODUCER, behind, 2, epoch=1), origin=origin, guard=guard)
    assert has_open_txn(log)
    assert log.producers.guard_of(PRODUCER) is NO_GUARD
    assert log.producers.maybe_start_verification(PRODUCER, behind, 1) is NO_GUARD

    end_txn(log, PRODUCER, epoch=1)
    assert not has_open_txn(log)
    assert log.producers.guard_of(PRODUCER) is NO_GUARD
    following = behind + 2 if origin is CLIENT else 0
    fresh = log.producers.maybe_start_verification(PRODUCER, following, 1)
    assert fresh not in (guard, NO_GUARD)
    for stale in (guard, NO_GUARD):
        with pytest.raises(InvalidTxnStateError):
            lead(log, in_txn(PRODUCER, following, epoch=1), origin=origin, guard=stale)
    lead(log, in_txn(PRODUCER, following, epoch=1), origin=origin, guard=fresh)
    assert has_open_txn(log)


@behaviour("LOG-124")
def test_a_marker_clears_the_guard_of_an_empty_transaction(tmp_path: Path) -> None:
    log = a_log(tmp_path, verification=True)
    guard = log.producers.maybe_start_verification(PRODUCER, 0, 1)
    end_txn(log, PRODUCER, epoch=1)
    assert log.producers.guard_of(PRODUCER) is NO_GUARD
    with pytest.raises(InvalidTxnStateError):
        lead(log, in_txn(PRODUCER, 0, epoch=1), guard=guard)


@behaviour("LOG-126")
def test_with_verification_a_transaction_needs_a_guard(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    log.producers.verification = True
    with pytest.raises(InvalidTxnStateError) as refusal:
        lead(log, in_txn(PRODUCER, 4, 2, epoch=1))
    assert refusal.value.error_code == 48
    assert (has_open_txn(log), log.log_end_offset) == (False, 0)
    guard = log.producers.maybe_start_verification(PRODUCER, 4, 1)
    lead(log, in_txn(PRODUCER, 4, 2, epoch=1), guard=guard)
    assert has_open_txn(log)


@behaviour("LOG-126")
def test_without_verification_a_transaction_needs_no_guard_and_drops_the_one_it_had(tmp_path: Path) -> None:
    log = a_log(tmp_path, verification=True)
    log.producers.maybe_start_verification(PRODUCER, 0, 1)
    log.producers.verification = False
    lead(log, in_txn(PRODUCER, 0, 2, epoch=1))
    assert has_open_txn(log)
    assert log.producers.guard_of(PRODUCER) is NO_GUARD


@behaviour("LOG-127")
def test_an_unknown_producer_may_begin_anywhere_when_it_is_verified(tmp_path: Path) -> None:
    log = a_log(tmp_path, verification=True)
    guard = log.producers.maybe_start_verification(PRODUCER, 3, 1)
    assert lead(log, in_txn(PRODUCER, 3, 2, epoch=1), guard=guard).last_offset == 1


@pytest.mark.parametrize("guard", [NO_GUARD, VerificationGuard()])
@behaviour("LOG-136")
def test_of_an_older_epoch_outside_of_a_transaction_the_epoch_is_what_is_wrong(
    tmp_path: Path, guard: VerificationGuard
) -> None:
    log = a_log(tmp_path, verification=True)
    own = log.producers.maybe_start_verification(PRODUCER, 0, 5)
    lead(log, in_txn(PRODUCER, 0, epoch=5), guard=own)
    end_txn(log, PRODUCER, epoch=5)
    with pytest.raises(InvalidProducerEpochError):
        lead(log, in_txn(PRODUCER, 0, epoch=4), guard=guard)
