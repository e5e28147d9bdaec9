"""One partition: where it begins and ends, what is read of it, and what damage does to that."""

import shutil
from pathlib import Path

import pytest

import tidelog
from tests.golden.corpus import RELEASE, Partition, case, partitions, undamaged_partitions
from tests.log.logs import NOW, a_log, all_replicated, batch, fill, lead
from tidelog.errors import CorruptRecordError, InvalidRequestError, OffsetOutOfRangeError, TidelogError
from tidelog.log import Isolation, TopicPartition, UnifiedLog
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.log.local_files import LocalFileSystem
from tidelog.records import NewRecord, build_batch, read_batches
from tidelog.view import PartitionView
from tidelog.view.files import ReadOnlyFiles

LOG = "00000000000000000000.log"


def view_of(log: UnifiedLog | Path) -> PartitionView:
    return PartitionView.at(ReadOnlyFiles(), log.directory if isinstance(log, UnifiedLog) else str(log))


def offsets(view: PartitionView, *bounds: int | None, committed: bool = False) -> list[int]:
    return [record.offset for record in view.read(*bounds, committed=committed)]


def a_directory(root: Path, segments: list[int], **config: int) -> Path:
    """A partition of one batch per record, closed."""
    with a_log(root, **config) as log:
        fill(log, segments)
        all_replicated(log)
    return root / "topic-0"


def damage(path: Path, position: int, data: bytes) -> None:
    whole = bytearray(path.read_bytes())
    whole[position : position + len(data)] = data
    path.write_bytes(whole)


# -- what real brokers wrote -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition", undamaged_partitions(), ids=str)
def test_every_record_of_the_corpus_is_read(partition: Partition) -> None:
    (view,) = tidelog.open(partition.path)
    expected = [record for part in read_batches(partition.read()) if not part.is_control for record in part]
    once = {record.offset: record for record in reversed(expected) if record.offset >= view.log_start_offset}
    # In the order of the file, which inside one batch of rec-times-0 is not that of the offsets.
    assert list(view.read()) == list(dict.fromkeys(once[r.offset] for r in expected if r.offset in once))
    assert view.log_end_offset >= max(once, default=-1) + 1


def test_no_partition_of_the_corpus_raises_anything_but_our_errors() -> None:
    count, failures = 0, []
    for partition in partitions():
        try:
            (view,) = tidelog.open(partition.path)
            count += len(list(view.read(committed=True)))
            view.notices, view.explain(time=-1), view.last_stable_offset
        except TidelogError as error:
            failures.append(str(error))
    assert count > 10_000
    assert 0 < len(failures) < 40
    assert not [message for message in failures if "\n" in message]


# -- bounds ----------------------------------------------------------------------------------------------------------


def checkpoints(root: Path, **offsets_of: int) -> None:
    for name, offset in offsets_of.items():
        path = root / name.replace("_", "-")
        OffsetCheckpoint(LocalFileSystem(), str(path)).write({TopicPartition("topic", 0): offset})


@pytest.mark.parametrize(
    ("log_start", "high_watermark", "expected"),
    [
        (4, 7, (4, 7)),
        (0, 99, (3, 10)),  # the first segment begins at 3
        (99, 99, (10, 10)),
        (8, 2, (8, 8)),
    ],
)
def test_the_bounds_are_those_of_the_checkpoints_kept_within_the_log(
    log_start: int, high_watermark: int, expected: tuple[int, int], tmp_path: Path
) -> None:
    directory = a_directory(tmp_path, [3, 3, 4])
    for file in directory.glob("00000000000000000000.*"):
        file.unlink()
    checkpoints(tmp_path, log_start_offset_checkpoint=log_start, replication_offset_checkpoint=high_watermark)
    view = view_of(directory)
    assert (view.log_start_offset, view.high_watermark, view.log_end_offset) == (*expected, 10)
    assert offsets(view) == list(range(expected[0], 10))
    assert [r.offset for r in view.read(end_bound="highWatermark")] == list(range(*expected))
    assert bool(view.notices) == (high_watermark > 10)


def test_without_checkpoints_the_bounds_are_those_of_the_log_and_a_notice_says_so(tmp_path: Path) -> None:
    view = view_of(a_directory(tmp_path, [3]))
    assert (view.log_start_offset, view.high_watermark, view.last_stable_offset, view.log_end_offset) == (0, 3, 3, 3)
    (notice,) = view.notices
    checkpoint = tmp_path / "replication-offset-checkpoint"
    assert notice == f"{checkpoint} does not know topic-0; the high watermark is taken to be the log end"


def test_damaged_checkpoints_are_notices(tmp_path: Path) -> None:
    directory = a_directory(tmp_path, [3])
    for path in (tmp_path / "log-start-offset-checkpoint", tmp_path / "replication-offset-checkpoint"):
        path.write_text("0\n7\n")
    (directory / "leader-epoch-checkpoint").write_bytes(b"\xff")
    (directory / "partition.metadata").write_text("version: x\n")
    (directory / "seven.log").write_text("")
    view = view_of(directory)
    assert offsets(view) == [0, 1, 2]
    assert (view.leader_epochs, view.topic_id, view.latest_epoch) == ((), None, 0)
    assert len(view.notices) == 5
    assert all("\n" not in notice for notice in view.notices)


def test_ranges_are_cut_to_what_is_there(tmp_path: Path) -> None:
    view = view_of(a_directory(tmp_path, [3, 4, 3]))
    assert offsets(view, 2, 8) == [2, 3, 4, 5, 6, 7]
    assert offsets(view, 4) == [4, 5, 6, 7, 8, 9]
    assert offsets(view, 8, 99) == [8, 9]
    assert offsets(view, 99) == offsets(view, 5, 5) == offsets(view, 6, 2) == []
    for wrong in (-1, 2**63):
        with pytest.raises(OffsetOutOfRangeError):
            offsets(view, wrong)
    with pytest.raises(InvalidRequestError, match="'end' is no end of a log"):
        list(view.read(end_bound="end"))  # type: ignore[arg-type]


def test_a_batch_across_a_bound_is_cut_by_records(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 5)
    lead(log, 5)
    assert offsets(view_of(log), 3, 7) == [3, 4, 5, 6]
    assert [part.base_offset for part in view_of(log).batches(3, 7)] == [0, 5]


@pytest.mark.parametrize("codec_partition", [p for p in partitions("legacy") if "gzip" in p.name or "v1" in p.name][:6])
def test_a_wrapper_of_the_old_formats_across_a_bound_is_cut_too(codec_partition: Partition) -> None:
    (view,) = tidelog.open(codec_partition.path)
    whole = list(view.read())
    for first in range(view.log_start_offset, view.log_end_offset, 3):
        for limit in range(first, view.log_end_offset + 1, 2):
            assert list(view.read(first, limit)) == [r for r in whole if first <= r.offset < limit]


def test_an_empty_partition_has_nothing(tmp_path: Path) -> None:
    view = view_of(a_directory(tmp_path, [0]))
    assert (offsets(view), view.log_end_offset, view.last_stable_offset) == ([], 0, 0)
    assert view.offset_for_time(5) is None
    (tmp_path / "bare-0").mkdir()
    (tmp_path / "bare-0" / "leader-epoch-checkpoint").touch()
    (bare,) = tidelog.open(tmp_path / "bare-0")
    assert (bare.segments, offsets(bare), bare.last_stable_offset) == ((), [], 0)
    assert bare.offset_for_time(-3) is None
    assert bare.offset_for_time(-1) == (-1, 0, None)


def test_a_new_look_is_needed_to_see_what_was_appended(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    lead(log, 2)
    view = view_of(log)
    assert offsets(view) == [0, 1]
    lead(log, 2)
    log.roll()
    lead(log, 2)
    assert offsets(view) == [0, 1]
    assert offsets(view.refresh()) == [0, 1, 2, 3, 4, 5]


# -- the end ---------------------------------------------------------------------------------------------------------


def test_wherever_the_active_segment_is_cut_the_whole_batches_are_read(tmp_path: Path) -> None:
    directory = a_directory(tmp_path, [2, 3], index_interval_bytes=50)
    active = directory / "00000000000000000002.log"
    whole = active.read_bytes()
    size = len(whole) // 3
    for cut in range(len(whole) + 1):
        active.write_bytes(whole[:cut])
        view = view_of(directory)
        assert view.log_end_offset == 2 + cut // size
        assert offsets(view) == list(range(2 + cut // size))
        assert view.segments[-1].size == cut // size * size


@pytest.mark.parametrize("position", [0, 8, 16, 17, 23, 70])
def test_a_failing_batch_at_the_very_end_is_the_end(position: int, tmp_path: Path) -> None:
    directory = a_directory(tmp_path, [4])
    size = (directory / LOG).stat().st_size // 4
    damage(directory / LOG, 3 * size + position, b"\xee")
    view = view_of(directory)
    assert (offsets(view), view.log_end_offset) == ([0, 1, 2], 3)
    assert f"{LOG}, position {3 * size}" in view.notices[0]


def test_zeros_behind_the_last_batch_are_the_end_as_in_a_preallocated_file(tmp_path: Path) -> None:
    directory = a_directory(tmp_path, [3])
    with (directory / LOG).open("ab") as file:
        file.write(bytes(100_000))
    view = view_of(directory)
    assert offsets(view) == [0, 1, 2]
    assert not any("position" in notice for notice in view.notices)
    assert (view.segments[0].size, view.segments[0].file_size) == (view.size, view.size + 100_000)
    assert view.offset_for_time(NOW) == (NOW, 0, 0)
    assert view.offset_for_time(NOW + 1) is None


def test_offsets_that_go_back_at_the_end_are_not_delivered(tmp_path: Path) -> None:
    directory = a_directory(tmp_path, [3])
    whole = (directory / LOG).read_bytes()
    (directory / LOG).write_bytes(whole + whole[: len(whole) // 3])
    assert offsets(view_of(directory)) == [0, 1, 2]
    assert "offset 0 behind offset 2" in view_of(directory).notices[0]


# -- damage elsewhere ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("file", "batch_number"), [(LOG, 0), (LOG, 1), ("00000000000000000003.log", 1)])
@pytest.mark.parametrize("position", [10, 17, 23, 70])
def test_damage_before_the_end_names_the_file_the_position_and_fsck(
    file: str, batch_number: int, position: int, tmp_path: Path
) -> None:
    directory = a_directory(tmp_path, [3, 4], index_interval_bytes=1000)
    size = (directory / LOG).stat().st_size // 3
    damage(directory / file, batch_number * size + position, b"\x01")
    if position == 10:  # a length: everything behind it is lost until somebody looks closely
        damage(directory / file, batch_number * size + 8, b"\x00\x00\x00\x01")
    walk = view_of(directory).read()
    before = (0 if file == LOG else 3) + batch_number
    seen = []
    with pytest.raises(CorruptRecordError, match=f"{file}, position {batch_number * size}.*`tidelog fsck` tells"):
        seen.extend(record.offset for record in walk)
    assert len(seen) <= before


def test_a_closed_segment_that_ends_inside_a_batch_is_damaged(tmp_path: Path) -> None:
    directory = a_directory(tmp_path, [3, 4])
    whole = (directory / LOG).read_bytes()
    (directory / LOG).write_bytes(whole[:-5])
    with pytest.raises(CorruptRecordError, match=rf"{LOG}, position \d+: the last \d+ bytes are no batch.*fsck"):
        offsets(view_of(directory))
    assert offsets(view_of(directory), 3) == [3, 4, 5, 6]


def test_without_verification_a_wrong_checksum_is_not_seen(tmp_path: Path) -> None:
    directory = a_directory(tmp_path, [3])
    damage(directory / LOG, 17, b"\x00\x00")
    assert [record.offset for record in view_of(directory).read(verify=False)] == [0, 1, 2]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("content", [None, b"", bytes(24), b"\xff" * 24, b"\x00\x00\x00\x01" * 6])
def test_indexes_that_are_missing_or_wrong_cost_time_and_no_answer(
    suffix: str, content: bytes | None, tmp_path: Path
) -> None:
    log = a_log(tmp_path, index_interval_bytes=50)
    for number in range(10):
        if number == 5:
            log.roll()
        lead(log, batch(1, timestamp_ms=NOW + number))
    log.close()
    for path in (tmp_path / "topic-0").glob(f"*{suffix}"):
        path.unlink() if content is None else path.write_bytes(content)
    view = view_of(tmp_path / "topic-0")
    assert offsets(view) == list(range(10))
    assert [offsets(view, n, n + 1) for n in range(10)] == [[n] for n in range(10)]
    assert [view.offset_for_time(NOW + n) for n in range(10)] == [(NOW + n, n, 0) for n in range(10)]


# -- lookups and summaries -------------------------------------------------------------------------------------------


def test_a_huge_record_is_read(tmp_path: Path) -> None:
    log = a_log(tmp_path, max_message_bytes=1 << 24)
    value = bytes(range(256)) * 40_000
    log.append_as_leader(memoryview(build_batch([NewRecord(b"k", value, NOW)])), 0)
    lead(log, 1)
    first, second = view_of(log).read()
    assert (first.value, second.offset) == (value, 1)


def test_offsets_by_time_are_those_of_the_log(tmp_path: Path) -> None:
    log = a_log(tmp_path, segment_bytes=300, index_interval_bytes=50)
    for step in (5, 1, 9, 3, 3, 12, 8, 2, 20, 0):
        lead(log, batch(2, timestamp_ms=NOW + step))
    log.update_high_watermark(15)
    view = view_of(log)
    for time in (*range(NOW - 1, NOW + 22), -1, -2, -3, -4, -5, -6):
        assert view.offset_for_time(time) == log.offset_for_time(time, Isolation.LOG_END)


def test_a_segment_knows_what_its_headers_say() -> None:
    (view,) = tidelog.open(case(f"{RELEASE}/1-codecs") / "image" / "j-gzip-0")
    (segment,) = view.segments
    summary = segment.summary
    infos = list(segment.batches())
    assert summary.batches == len(infos) > 1
    assert segment.records == summary.records == sum(info.records_count for info in infos) == len(list(view.read()))
    assert (segment.codecs, summary.magics) == (("gzip",), (2,))
    assert segment.first_timestamp_ms == next(view.read()).timestamp_ms
    assert segment.last_timestamp_ms == infos[-1].max_timestamp_ms
    assert segment.size == segment.file_size == infos[-1].position + infos[-1].size
    assert set(segment.files) == {".log", ".index", ".timeindex"}


def test_a_view_of_a_copy_is_that_of_the_original(tmp_path: Path) -> None:
    root = case(f"{RELEASE}/4-transactions") / "image"
    shutil.copytree(root, tmp_path / "copy")
    one, other = tidelog.open(root), tidelog.open(tmp_path / "copy")
    assert [view.notices for view in one] == [()] * len(one)
    assert [(v.topic_partition, v.topic_id, v.leader_epochs, list(v.read())) for v in one] == [
        (v.topic_partition, v.topic_id, v.leader_epochs, list(v.read())) for v in other
    ]


def test_damage_behind_an_empty_segment_is_met_once_and_told(tmp_path: Path) -> None:
    """As compaction leaves them: segments that hold nothing any more."""
    directory = a_directory(tmp_path, [3, 3, 3])
    (directory / LOG).write_bytes(b"")
    damage(directory / "00000000000000000003.log", 8, b"\x00\x00\x00\x02")
    (directory / "00000000000000000003.index").unlink(missing_ok=True)
    with pytest.raises(CorruptRecordError, match=r"00000000000000000003.log, position 0: "):
        offsets(view_of(directory))
