"""A segment whose log became empty is reported; one that compaction has emptied is not."""

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.log.compaction.compacting import a_compacted_log, compact, fill_segments, put, settle
from tests.log.logs import all_replicated
from tests.view.scans import rows_scanned, scan_of, some, view, write_log
from tidelog.cli.main import cli
from tidelog.log.names import file_name
from tidelog.records import Codec

WAYS = [
    ("cat",),
    ("cat", "--salvage"),
    ("cat", "--no-verify"),
    ("cat", "-o", "jsonl"),
    ("export",),
    ("export", "--salvage"),
]


@pytest.fixture
def emptied(tmp_path: Path) -> Path:
    """A partition of four segments of 5 records each, of which the second has lost its log."""
    put_five = ("put", Codec.NONE, some(5))
    directory = write_log(
        tmp_path / "root", [put_five, *[("roll",), put_five] * 3], "orders-0", index_interval_bytes=4096
    )
    os.truncate(directory / file_name(5, ".log"), 0)
    return directory


def run(directory: Path, way: tuple[str, ...], *arguments: str) -> Result:
    command, *options = way
    target = ["--to", str(directory.parents[1] / "out.jsonl"), "--force"] if command == "export" else []
    return CliRunner().invoke(cli, [command, str(directory), "--topic", "orders", *target, *options, *arguments])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("gone", [".index", ".timeindex", None])
def test_offsets_of_a_segment_that_became_empty_are_reported(
    emptied: Path, way: tuple[str, ...], gone: str | None
) -> None:
    """The offset index has no entry in so small a segment, so it can go; without both nobody can tell."""
    if gone is not None:
        (emptied / file_name(5, gone)).unlink()
    done = run(emptied, way)
    told = (
        f"{emptied / file_name(5, '.log')}: the file is empty, but its indexes have entries: offsets 5 to 9 are missing"
    )
    assert (done.exit_code, done.stderr) == ((0, "") if gone == ".timeindex" else (1, f"tidelog: {told}\n"))


@pytest.mark.parametrize("options", [{}, {"on_corruption": "skip"}, {"verify": False}, {"threads": 2}])
def test_a_scan_notes_them_and_gives_the_rest(emptied: Path, options: dict[str, Any]) -> None:
    scan = scan_of(emptied, **options)
    assert [row[2] for row in rows_scanned(scan)] == [*range(5), *range(10, 20)]
    assert scan.count() == 15
    [notice] = scan.notices
    assert "offsets 5 to 9 are missing" in notice
    assert notice in view(emptied).notices


@pytest.mark.parametrize("bounds", [("--until", "5"), ("--from", "10"), ("--from", "@2030-01-01")])
def test_offsets_that_nobody_asked_for_are_not_reported(emptied: Path, bounds: tuple[str, ...]) -> None:
    bounds = tuple(bound.removeprefix("@") for bound in bounds)
    for way in (("cat",), ("cat", "--salvage"), ("export",)):
        done = run(emptied, way, *bounds)
        assert (done.exit_code, "missing" in done.stderr) == (0, False)


def test_rows_up_to_a_limit_before_the_gap_are_all_there(emptied: Path) -> None:
    for limit, code in ((5, 0), (6, 1)):
        done = run(emptied, ("cat", "--limit", str(limit)))
        assert (done.exit_code, len(done.stdout.splitlines())) == (code, limit)


def test_a_segment_that_is_being_changed_is_not_reported(emptied: Path, tmp_path: Path) -> None:
    """The second look sees that a truncation has reached the segments after it."""
    partition = view(emptied)
    assert len(partition.look.segments) == 4
    for base in (10, 15):
        for path in emptied.glob(f"{base:020}.*"):
            path.unlink()
    assert partition.lost_segments == ()


def test_a_segment_that_compaction_emptied_is_not_reported(tmp_path: Path) -> None:
    """All of its keys are overwritten later, and it is too large to be merged with its neighbours."""
    log = a_compacted_log(tmp_path, segment_bytes=1024)
    middle = fill_segments(log, 2)
    last = fill_segments(log, 3)
    for key in (*range(middle, last), -1, -2):
        put(log, key)
    log.roll()
    all_replicated(log)
    compact(log)
    settle(log)
    log.close()
    directory = tmp_path / "topic-0"
    assert (directory / file_name(middle, ".log")).stat().st_size == 0
    assert view(directory).lost_segments == ()
    assert scan_of(directory).count() > 0
    # An index that was preallocated and never written to has no entries.
    (directory / file_name(middle, ".timeindex")).write_bytes(bytes(1020))
    (directory / file_name(middle, ".index")).write_bytes(bytes(1024))
    assert view(directory).lost_segments == ()
