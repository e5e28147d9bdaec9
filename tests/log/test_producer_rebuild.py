"""Producer state rebuilt from a log with damage in it: an error that says where, and how to repair it.

Kafka does not start on such a log either: tests/compat/test_would_start.py.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.log.logs import (
    a_log,
    end_txn,
    follow,
    in_txn,
    lead,
    offsets_in,
    remove_snapshots,
    sealed,
    unreadable_marker,
)
from tests.log.manager.managers import a_manager
from tidelog.errors import CorruptionError, CorruptRecordError, InvalidRecordError
from tidelog.fsck import check, repair
from tidelog.log import UnifiedLog
from tidelog.log.names import RECOVERY_POINT_CHECKPOINT

Damage = Callable[[bytes], bytes]
MARKER = 2  # its offset
DAMAGES: dict[str, tuple[Damage, str]] = {
    "a key of a version that cannot be": (lambda data: bytes(unreadable_marker(MARKER)), "a control key of version"),
    "another type of record": (lambda data: sealed(data, {len(data) - 9: 9}), "is no end of a transaction"),
    "an unknown compression": (lambda data: sealed(data, {22: 0x37}), "codec"),
    "not called transactional": (
        lambda data: sealed(unreadable_marker(MARKER), {22: 0x20}), "a control key of version",
    ),
    "a length that no batch has": (lambda data: data[:11] + bytes([5]) + data[12:], "a batch length of 5"),
}  # fmt: skip


def with_a_damaged_marker(root: Path, damage: Damage) -> tuple[UnifiedLog, Path, int]:
    """A log of two segments without snapshots, the segment with a damaged marker in it, and where that is."""
    log = a_log(root)
    lead(log, in_txn(5, 0, 2))
    path, position = Path(log.active_segment.log.path), log.size
    end_txn(log, 5)
    size = log.size - position
    lead(log, 1)
    log.roll()
    lead(log, 1)
    log.release()
    remove_snapshots(log)
    data = path.read_bytes()
    path.write_bytes(data[:position] + damage(data[position : position + size]) + data[position + size :])
    return log, path, position


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_in_what_is_replayed_is_an_error_that_names_place_and_repair(
    tmp_path: Path, damage: tuple[Damage, str]
) -> None:
    hurt, words = damage
    log, path, position = with_a_damaged_marker(tmp_path, hurt)
    with pytest.raises(CorruptRecordError) as caught:
        a_log(tmp_path, recovery_point=log.log_end_offset)
    assert f"{path}, position {position}" in str(caught.value)
    assert words in str(caught.value)
    assert f"`tidelog fsck --repair {tmp_path}`" in str(caught.value)

    assert {one.code for one in check(tmp_path).findings if one.position == position and one.severity == "error"}
    assert repair(tmp_path).is_clean
    log = a_log(tmp_path, recovery_point=log.log_end_offset)
    is_mended = words == "a batch length of 5"
    assert offsets_in(log) == ([0, 1, 2, 3, 4] if is_mended else [0, 1, 3, 4])
    assert {producer.producer_id for producer in log.producers.active_producers()} == {5}
    log.release()


def test_a_directory_of_logs_opens_again_after_the_repair_of_one(tmp_path: Path) -> None:
    with_a_damaged_marker(tmp_path, lambda data: bytes(unreadable_marker(MARKER)))
    a_log(tmp_path, name="topic-1").close()
    (tmp_path / RECOVERY_POINT_CHECKPOINT).write_text("0\n1\ntopic 0 5\n")
    with pytest.raises(CorruptionError, match="topic-0 cannot be loaded: .* fsck --repair"):
        a_manager([tmp_path])
    assert repair(tmp_path).is_clean
    manager = a_manager([tmp_path])
    assert sorted(map(str, manager.logs)) == ["topic-0", "topic-1"]
    manager.close()


def test_a_follower_rejects_a_marker_that_cannot_be_read(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    for bad in (unreadable_marker(0), sealed(unreadable_marker(0), {22: 0x20})):
        with pytest.raises(InvalidRecordError, match="a control key of version"):
            follow(log, bad)
    assert log.log_end_offset == 0


def test_a_marker_ends_its_transaction_though_it_is_not_called_transactional(tmp_path: Path) -> None:
    log, _, _ = with_a_damaged_marker(tmp_path, lambda data: sealed(data, {22: 0x20}))
    log = a_log(tmp_path, recovery_point=log.log_end_offset)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset
    assert check(tmp_path).is_clean
    log.release()
