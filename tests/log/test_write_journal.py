"""A root with an unfinished write: nobody opens a log there, or starts on it, before the write is settled."""

from pathlib import Path

import pyarrow as pa
import pytest

import tidelog
from tests.log.journals import COMMIT, GROUP, LOAD
from tidelog.errors import CheckpointError, LockedError, StorageError, TidelogError
from tidelog.fsck import check
from tidelog.log import LogManager, TopicPartition, UnifiedLog
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import LOCK_FILE, OLD_JOURNALS, UNFINISHED_WRITE
from tidelog.log.write_journal import WriteJournal, remove_journal, write_journal
from tidelog.records import NewRecord
from tidelog.tables.load import load_table

FS = LocalFileSystem()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with LogManager.open(str(tmp_path)) as manager:
        manager.get_or_create(TopicPartition("orders", 0)).append(NewRecord(None, b"old"))
    return tmp_path


@pytest.mark.parametrize("journal", [LOAD, COMMIT])
@pytest.mark.parametrize("name", ["orders-0", "orders-7"])
def test_no_log_is_opened_beside_an_unfinished_write(root: Path, journal: WriteJournal, name: str) -> None:
    """Its recovery would cut off what is appended now."""
    write_journal(FS, str(root), journal)
    names = sorted(path.name for path in root.iterdir())
    with pytest.raises(StorageError, match=f"was interrupted; run `tidelog recover {root}` first"):
        UnifiedLog.open(root / name)
    assert sorted(path.name for path in root.iterdir()) == names
    remove_journal(FS, str(root))
    with UnifiedLog.open(root / name) as log:
        assert log.append(NewRecord(None, b"new")).first_offset == (name == "orders-0")


def test_all_directories_of_a_load_are_named_to_whoever_opens_a_log_in_one(root: Path) -> None:
    write_journal(FS, str(root), GROUP)
    with pytest.raises(StorageError, match="a load was interrupted; run `tidelog recover /d1 /d2` first"):
        UnifiedLog.open(root / "orders-0")


def test_a_write_that_goes_on_is_not_said_to_be_interrupted(root: Path) -> None:
    lock = FS.lock(str(root / LOCK_FILE))
    write_journal(FS, str(root), LOAD)
    with pytest.raises(LockedError):
        UnifiedLog.open(root / "orders-0")
    lock.release()


@pytest.mark.parametrize("name", OLD_JOURNALS)
def test_nobody_starts_on_a_write_that_an_earlier_build_has_left(root: Path, name: str) -> None:
    (root / name).write_bytes(b"{}")
    for start in (lambda: LogManager.open(str(root)), lambda: UnifiedLog.open(root / "orders-0")):
        with pytest.raises(TidelogError, match="does not read journals of earlier builds"):
            start()
    (root / name).unlink()
    with LogManager.open(str(root)) as manager:
        assert manager.get_or_create(TopicPartition("orders", 0)).log_end_offset == 1


@pytest.mark.parametrize("name", [UNFINISHED_WRITE, *OLD_JOURNALS])
def test_a_link_to_nothing_in_the_place_of_the_journal_is_not_passed_over(root: Path, name: str) -> None:
    """The disk that it points to may not be mounted: nobody knows what is unfinished then."""
    (root / name).symlink_to(root / "not-mounted")
    with pytest.raises(CheckpointError, match=f"{name}: a symbolic link that leads nowhere, .*: mount the disk"):
        UnifiedLog.open(root / "orders-0")
    with pytest.raises(CheckpointError, match="leads nowhere"):
        list(tidelog.open(str(root))["orders", 0].read())
    with pytest.raises(CheckpointError, match="leads nowhere"):
        load_table([pa.RecordBatch.from_pydict({"value": [b"x"]})], str(root), "orders")
    [finding] = [each for each in check(str(root)).findings if each.code == "ROOT-LOAD"]
    assert "leads nowhere" in finding.message
    assert (root / name).is_symlink()
