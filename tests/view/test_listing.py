"""What lies in directories, while it changes and where there is much of it."""

from pathlib import Path

from tests.log.logs import a_log, lead
from tidelog.log.files import FileStat
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import HIGH_WATERMARK_CHECKPOINT
from tidelog.view.counted_files import CountedFiles
from tidelog.view.files import ReadOnlyFiles
from tidelog.view.listing import list_roots
from tidelog.view.root import RootView


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
