"""Which indexes a repair rebuilds, with which spacing, and what it says of them."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fsck.roots import metadata_log
from tests.fsck.roots_on_disk import a_root, contents, flip, segment
from tests.fsck.test_check import batch_starts
from tests.fsck.test_repair import manifest
from tests.fsck.world import CONFIG, NOW
from tests.log.segments_language import batch
from tidelog.fsck import check, plan_repair
from tidelog.fsck.index_check import check_offset_index, steps_between
from tidelog.fsck.index_spacing import IndexSpacing
from tidelog.fsck.mending import RepairResult, repair
from tidelog.fsck.notes import Notes
from tidelog.fsck.segment_facts import Batches, SegmentFacts
from tidelog.fsck.segment_scan import scan_segment
from tidelog.kernels.index_check import steps_of_index
from tidelog.kernels.record_walk import COLUMNS
from tidelog.log import LogConfig, ManualClock, UnifiedLog
from tidelog.log.local_files import LocalFileSystem

INDEXES = (".index", ".timeindex", ".txnindex")
DEFAULT_INTERVAL = 4096


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return a_root(tmp_path)


def repaired(root: Path, config: LogConfig | dict[str, str] | None = None) -> RepairResult:
    return repair(str(root), config=config, clock=ManualClock(NOW))


def indexes(root: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(root).items() if name.endswith(INDEXES)}


def test_indexes_of_sound_segments_behind_the_cut_stay_as_they_are(root: Path) -> None:
    damaged = segment(root, 1)
    flip(damaged, batch_starts(damaged)[2] + 70)
    before = indexes(root)
    result = repaired(root)
    assert result.is_clean
    after = indexes(root)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed <= {f"orders-0/{damaged.stem}{suffix}" for suffix in INDEXES}


def test_an_index_is_rebuilt_with_the_spacing_that_the_sound_ones_show(root: Path, tmp_path: Path) -> None:
    (tmp_path / "told").mkdir()
    told = a_root(tmp_path / "told")
    for one in (root, told):
        flip(segment(one, 1), batch_starts(segment(one, 1))[2] + 70)
    assert repaired(told, CONFIG).is_clean
    result = repaired(root)
    assert indexes(root) == indexes(told)
    assert segment(root, 1, ".index").stat().st_size > 0  # by Kafka's default there would be no entry
    (line,) = [line for line in result.done if "index.interval.bytes" in line]
    assert "as the sound indexes of the log show" in line


def test_every_file_that_is_rebuilt_is_in_the_plan_and_in_the_manifest_with_its_reason(root: Path) -> None:
    damaged = segment(root, 1)
    flip(damaged, batch_starts(damaged)[2] + 70)
    broken = segment(root, 3, ".timeindex")
    flip(broken, 3)
    result = repaired(root)
    reasons = {str(broken): "TIX-ENTRY"} | {str(damaged.with_suffix(suffix)): "LOG-CRC" for suffix in INDEXES}
    reasons = {path: code for path, code in reasons.items() if path in " ".join(result.done)}
    assert {str(broken), str(damaged.with_suffix(".index")), str(damaged.with_suffix(".timeindex"))} <= reasons.keys()
    for path, code in reasons.items():
        (line,) = [line for line in result.done if line.startswith(f"{path}: rebuilt")]
        assert line.endswith(f"({code})")
        kept = {one["code"] for one in manifest(result) if one["file"] == path}
        assert kept == {code}
    assert {one["file"] for one in manifest(result) if str(one["file"]).endswith(INDEXES)} <= reasons.keys()


def test_of_a_segment_only_the_index_is_rebuilt_that_is_wrong(root: Path) -> None:
    segment(root, 0, ".timeindex").unlink()
    before = indexes(root)
    result = repaired(root, {"index.interval.bytes": "100000"})
    assert result.is_clean
    made = f"orders-0/{segment(root, 0, '.timeindex').name}"
    after = indexes(root)
    assert after.pop(made)
    assert after == before


def test_what_was_given_goes_before_the_metadata_log_and_that_before_the_indexes(root: Path) -> None:
    segment(root, 0, ".index").unlink()
    sources = [_plan_of(root)]
    metadata_log(root, "orders", "index.interval.bytes", "777")
    sources.append(_plan_of(root))
    sources.append(_plan_of(root, {"index.interval.bytes": "555"}))
    for path in root.glob("orders-0/*.index"):
        path.unlink()
    (root / "__cluster_metadata-0" / "00000000000000000000.log").write_bytes(b"no log")
    sources.append(_plan_of(root))
    assert sources == [
        "index.interval.bytes=155, as the sound indexes of the log show",
        "index.interval.bytes=777, the topic's by the metadata log",
        "index.interval.bytes=555, as given",
        "index.interval.bytes=4096, Kafka's default",
    ]


def _plan_of(root: Path, config: dict[str, str] | None = None) -> str:
    plan = plan_repair(check(str(root), deep=True), config=config)
    (partition,) = [one for one in plan.partitions if one.check.place.name == "orders-0"]
    return str(partition.index_config)


def test_the_plan_calls_a_torn_end_what_the_check_calls_it(root: Path) -> None:
    log = segment(root, -1)
    log.write_bytes(log.read_bytes()[:-5])
    report = check(str(root), deep=True)
    assert "LOG-TAIL" in report.codes()
    lines = [line for line in plan_repair(report).lines() if str(log) in line]
    assert [line.endswith("(LOG-TAIL)") for line in lines] == [True, True]  # what is cut, and the file
    assert "LOG-TORN" not in {one["code"] for one in manifest(repaired(root))}


# -- the spacing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interval", [0, 1, 99, 500, 4096, 5000, 20_000])
def test_an_interval_out_of_an_index_makes_the_same_index(interval: int, tmp_path: Path) -> None:
    rng = random.Random(interval)
    config = LogConfig(index_interval_bytes=interval, segment_bytes=1 << 30)
    directory = tmp_path / "orders-0"
    with UnifiedLog.open(directory, config, clock=ManualClock(NOW), lock=False) as log:
        for offset in range(400):
            log.append_as_follower(batch(offset, bytes(rng.choice((1, 40, 300, 2000)))))
    written = (directory / f"{0:020}.index").read_bytes()
    spacing = _spacing_of(directory)
    found = spacing.interval(DEFAULT_INTERVAL)
    assert found is not None
    (directory / f"{0:020}.index").unlink()
    with UnifiedLog.open(
        directory, LogConfig(index_interval_bytes=found), clock=ManualClock(NOW), clean_shutdown=True, lock=False
    ):
        pass
    assert (directory / f"{0:020}.index").read_bytes() == written
    assert interval != DEFAULT_INTERVAL or found == interval


def _spacing_of(directory: Path) -> IndexSpacing:
    file = LocalFileSystem().open(str(directory / f"{0:020}.log"))
    facts = scan_segment(file, 0)
    index = directory / f"{0:020}.index"
    data = index.read_bytes()
    steps = check_offset_index(Notes(None), str(index), data, facts, is_open=False)
    assert steps is not None
    assert steps == check_offset_index(Notes(None), str(index), data, facts, is_open=False, quick=False)
    spacing = IndexSpacing()
    spacing.take(steps)
    return spacing


def test_a_broker_that_was_restarted_makes_no_interval_too_large() -> None:
    starts = np.arange(0, 10_000, 100)
    positions = np.array([300, 600, 1500, 1800])  # it was restarted between the second and the third
    steps = steps_between(positions, starts)
    assert steps is not None
    entries = np.array([(position, position) for position in positions.tolist()], ">i4")
    assert steps_of_index(entries, 0, starts, starts) == steps
    spacing = IndexSpacing()
    spacing.take(steps)
    assert spacing.interval(DEFAULT_INTERVAL) == 299


def test_an_index_without_entries_tells_nothing() -> None:
    assert steps_between(np.array([], np.int64), np.arange(3)) is None
    assert IndexSpacing().interval(DEFAULT_INTERVAL) is None


@given(
    gaps=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    indexed=st.sets(st.integers(0, 11), min_size=1),
    harm=st.none() | st.tuples(st.integers(0, 11), st.integers(0, 1), st.integers(-5, 5)),
)
@example(gaps=[4, 4, 4], indexed={1, 2}, harm=(1, 0, -1))
@example(gaps=[4, 4, 4], indexed={1, 2}, harm=(1, 0, 1))
@example(gaps=[4, 4, 4], indexed={1, 2}, harm=(0, 1, 4))
def test_the_kernel_finds_an_index_right_where_the_words_do(
    gaps: list[int], indexed: set[int], harm: tuple[int, int, int] | None
) -> None:
    starts = np.cumsum([0, *gaps[:-1]])
    facts = SegmentFacts("log", 10, int(sum(gaps)))
    columns = np.zeros((len(COLUMNS), len(gaps)), np.int64)
    for name, column in (("position", starts), ("size", gaps), ("first", starts + 10), ("last", starts + 10)):
        columns[COLUMNS.index(name)] = column
    columns[COLUMNS.index("magic")] = 2
    facts.batches = Batches(columns)
    named = starts[[batch for batch in sorted(indexed) if batch < len(gaps)]]
    entries = np.stack([named, named], axis=1).astype(">i4")
    if harm is not None and len(entries):
        entries[harm[0] % len(entries), harm[1]] += harm[2]
    results = []
    for quick in (True, False):
        notes = Notes(None)
        steps = check_offset_index(notes, "index", entries.tobytes(), facts, is_open=False, quick=quick)
        results.append((steps, [(finding.code, finding.message) for finding in notes.findings]))
    assert results[0] == results[1]
