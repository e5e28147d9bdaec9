"""What lies in directories, while it changes and where there is much of it."""

import shutil
from pathlib import Path

import pytest

import tidelog
from tests.golden.corpus import RELEASE, case
from tests.log.logs import a_log, lead
from tidelog.log.files import FileStat
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import HIGH_WATERMARK_CHECKPOINT
from tidelog.view.counted_files import CountedFiles
from tidelog.view.files import ReadOnlyFiles
from tidelog.view.listing import list_roots
from tidelog.view.root import RootView

IMAGE = case(f"{RELEASE}/4-transactions") / "image"


class DeletesTheFirstSegment(LocalFileSystem):
    """A disk on which somebody deletes the first segment when a later one is first asked for."""

    def __init__(self, log: Path, others: Path) -> None:
        super().__init__()
        self._log = log
        self._others = others

    def stat(self, path: str) -> FileStat | None:
        if path == str(self._others):
            self._log.unlink(missing_ok=True)
        return super().stat(path)


def test_a_segment_that_goes_away_while_it_is_listed_leads_to_a_fresh_look(tmp_path: Path) -> None:
    with a_log(tmp_path, segment_bytes=200) as log:
        for _ in range(12):
            lead(log, 1)
    logs = sorted((tmp_path / "topic-0").glob("*.log"))
    assert len(logs) > 2
    disk = DeletesTheFirstSegment(logs[0], logs[1])
    (listed,) = list_roots([RootView(ReadOnlyFiles(disk), str(tmp_path))], with_segments=True)
    assert listed.problem is None
    assert listed.segments == len(logs) - 1
    assert [segment.base_offset for segment in listed.details] == [int(path.stem) for path in logs[1:]]


def test_checkpoints_are_read_once_however_many_partitions_there_are(tmp_path: Path) -> None:
    for number in range(8):
        with a_log(tmp_path, name=f"topic-{number}") as log:
            lead(log, 1)
    (tmp_path / HIGH_WATERMARK_CHECKPOINT).write_text("0\n0\n")
    files = CountedFiles(ReadOnlyFiles())
    assert len(list(list_roots([RootView(files, str(tmp_path))]))) == 8
    assert files.reads[str(tmp_path / HIGH_WATERMARK_CHECKPOINT)].calls == 1


@pytest.mark.parametrize("name", ["replication-offset-checkpoint", "log-start-offset-checkpoint"])
def test_a_checkpoint_that_cannot_be_read_is_a_note_and_not_the_end(name: str, tmp_path: Path) -> None:
    """A directory in its place cannot be opened by anybody, root included."""
    root = Path(shutil.copytree(IMAGE, tmp_path / "data"))
    (root / name).unlink(missing_ok=True)
    (root / name).mkdir()
    logs = tidelog.open(root)
    for row in list_roots(logs.roots):
        assert row.problem is None
        assert any(f"{name}: Is a directory; " in notice for notice in row.notices)
    assert len(list(logs["txn-main", 0].read())) == len(list(tidelog.open(IMAGE)["txn-main", 0].read()))


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "partition.metadata"])
def test_a_file_of_a_partition_that_cannot_be_read_is_a_note_too(name: str, tmp_path: Path) -> None:
    root = Path(shutil.copytree(IMAGE, tmp_path / "data"))
    (root / "txn-main-0" / name).unlink(missing_ok=True)
    (root / "txn-main-0" / name).mkdir()
    [row] = list_roots(tidelog.open(root).roots, frozenset({"txn-main"}))
    assert row.problem is None
    assert any(f"{name}: Is a directory; the file is not used" in notice for notice in row.notices)
