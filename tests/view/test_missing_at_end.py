"""Records that are missing at the end of a log by the checkpoints, and a broker that works while these are read."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.log.logs import a_log, batch, lead
from tidelog.log.files import ReadFile
from tidelog.log.names import HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, file_name
from tidelog.view import PartitionView
from tidelog.view.files import ReadOnlyFiles
from tidelog.view.listing import list_roots
from tidelog.view.root import RootView

BOUNDS = {HIGH_WATERMARK_CHECKPOINT: "the high watermark", RECOVERY_POINT_CHECKPOINT: "the recovery point"}


class WatchedFiles(ReadOnlyFiles):
    """Files that are changed once, before a file is opened or before a fresh look."""

    def __init__(self, change: Callable[[], object], before: str | None) -> None:
        super().__init__()
        self._change: Callable[[], object] | None = change
        self._before = before  # the name of the file, None for the look

    def open(self, path: str) -> ReadFile:
        if self._before is not None and path.endswith(self._before):
            self._change_once()
        return super().open(path)

    def fresh(self) -> "WatchedFiles":
        if self._before is None:
            self._change_once()
        return self

    def _change_once(self) -> None:
        change, self._change = self._change, None
        if change is not None:
            change()


def note(root: Path, end: int) -> None:
    for name in BOUNDS:
        (root / name).write_text(f"0\n1\ntopic 0 {end}\n")


def append(root: Path) -> None:
    """As a running broker: the checkpoints come last."""
    with a_log(root) as log:
        lead(log, batch(1))
        end = log.log_end_offset
    note(root, end)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    append(tmp_path)
    append(tmp_path)
    return tmp_path


def notices_of_missing(partition: PartitionView) -> list[str]:
    assert [partition.missing] == ([notice for notice in partition.notices if "missing" in notice] or [None])
    return [notice for notice in partition.notices if "missing" in notice]


def cut(root: Path) -> None:
    log = root / "topic-0" / file_name(0, ".log")
    os.truncate(log, log.stat().st_size // 2)


@pytest.mark.parametrize("name", BOUNDS)
def test_what_a_broker_appends_before_the_checkpoint_is_read_is_not_missing(root: Path, name: str) -> None:
    partition = PartitionView.at(WatchedFiles(lambda: append(root), name), str(root / "topic-0"))
    assert partition.log_end_offset == 2
    assert notices_of_missing(partition) == []
    assert (root / name).read_text().endswith(" 3\n")


def test_what_is_missing_is_reported_although_a_broker_has_moved_the_other_bound(root: Path) -> None:
    def move() -> None:
        append(root)
        (root / RECOVERY_POINT_CHECKPOINT).write_text("0\n1\ntopic 0 9\n")

    partition = PartitionView.at(WatchedFiles(move, HIGH_WATERMARK_CHECKPOINT), str(root / "topic-0"))
    assert partition.missing_after(2) == "the recovery point was 9 and the log ends at 3: records may be missing"


@pytest.mark.parametrize("name", BOUNDS)
def test_a_listing_beside_a_broker_reports_nothing_missing(root: Path, name: str) -> None:
    [row] = list_roots([RootView(WatchedFiles(lambda: append(root), name), str(root))])
    assert [notice for notice in row.notices if "missing" in notice] == []


def test_what_a_broker_truncates_is_not_missing(root: Path) -> None:
    note(root, 3)
    partition = PartitionView.at(WatchedFiles(lambda: (cut(root), note(root, 1)), None), str(root / "topic-0"))
    assert notices_of_missing(partition) == []


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("change", [lambda root: None, cut])
def test_records_that_are_gone_are_missing(root: Path, name: str, change: Callable[[Path], None]) -> None:
    """Also where the log loses more of them while it is looked at."""
    (root / name).write_text("0\n1\ntopic 0 4\n")
    partition = PartitionView.at(WatchedFiles(lambda: change(root), None), str(root / "topic-0"))
    assert notices_of_missing(partition) == [f"{BOUNDS[name]} was 4 and the log ends at 2: records may be missing"]
