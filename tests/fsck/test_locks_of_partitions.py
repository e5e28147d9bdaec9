"""Nobody mends what somebody else has open, whichever way leads there."""

from pathlib import Path

import pytest

from tests.log.logs import a_log, fill
from tidelog.errors import InvalidRequestError, LockedError
from tidelog.fsck import repair
from tidelog.fsck.reindex import reindex
from tidelog.log.local_files import LocalFileSystem


def _damaged(root: Path) -> Path:
    """A root as a broker leaves one, whose only log has half a batch at its end."""
    with a_log(root, name="orders-0") as log:
        fill(log, [5])
    path = root / "orders-0" / f"{0:020}.log"
    path.write_bytes(path.read_bytes()[:-10])
    (root / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    return path


def test_a_repair_leaves_a_log_alone_that_somebody_has_open(tmp_path: Path) -> None:
    path = _damaged(tmp_path)
    before = path.read_bytes()
    lock = LocalFileSystem().lock(str(tmp_path / "orders-0"))
    try:
        result = repair(tmp_path)
    finally:
        lock.release()
    assert path.read_bytes() == before
    assert ["somebody has this log open" in failure for failure in result.failures] == [True]
    assert not repair(tmp_path).failures
    assert path.read_bytes() != before


def test_a_link_does_not_lead_around_the_lock_of_a_root(tmp_path: Path) -> None:
    path = _damaged(tmp_path / "root")
    before = path.read_bytes()
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "orders-0").symlink_to(tmp_path / "root" / "orders-0")
    lock = LocalFileSystem().lock(str(tmp_path / "root" / ".lock"))
    try:
        for act in (repair, reindex):
            with pytest.raises(LockedError, match="root open: stop it first"):
                act(str(tmp_path / "links" / "orders-0"))
    finally:
        lock.release()
    assert path.read_bytes() == before


def test_a_link_in_a_root_is_not_mended_through_it(tmp_path: Path) -> None:
    path = _damaged(tmp_path / "root")
    before = path.read_bytes()
    with a_log(tmp_path / "links", name="other-0") as log:
        fill(log, [3])
    (tmp_path / "links" / "orders-0").symlink_to(tmp_path / "root" / "orders-0")
    result = repair(tmp_path / "links")
    assert [f"it is a link to {tmp_path}/root/orders-0" in failure for failure in result.failures] == [True]
    assert path.read_bytes() == before


def test_two_directories_of_a_partition_are_not_taken_for_one(tmp_path: Path) -> None:
    for name in ("orders-1", "orders-01"):
        with a_log(tmp_path, name=name) as log:
            fill(log, [3])
    with pytest.raises(InvalidRequestError, match="are directories of one partition"):
        reindex(str(tmp_path))


def test_nothing_to_rebuild_is_said(tmp_path: Path) -> None:
    with a_log(tmp_path, name="orders-1") as log:
        fill(log, [3])
    (tmp_path / "orders-1").rename(tmp_path / f"orders-1.{'a' * 32}-stray")
    with pytest.raises(InvalidRequestError, match="holds nothing to work on"):
        reindex(str(tmp_path))
