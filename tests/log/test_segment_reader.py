"""The read half of a log works on a file system that can only be read, and answers as the log itself does."""

import shutil
from pathlib import Path

import pytest

from tests.golden.corpus import Partition, case, partitions
from tidelog.log import Isolation, LogConfig, ManualClock, UnifiedLog
from tidelog.log.files import FileStat, ReadFile
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.log_reader import LogReader
from tidelog.log.names import LOG_SUFFIX, offset_of
from tidelog.log.offsets import OffsetMetadata
from tidelog.log.segment_reader import SegmentReader
from tidelog.log.segments import LogSegments


class ReadOnly:
    """A disk of which only the read half is there."""

    def __init__(self) -> None:
        self._disk = LocalFileSystem()

    def list(self, directory: str) -> list[str]:
        return self._disk.list(directory)

    def stat(self, path: str) -> FileStat | None:
        return self._disk.stat(path)

    def open(self, path: str) -> ReadFile:
        return self._disk.open(path)


def read_only(directory: Path) -> LogSegments[SegmentReader]:
    fs, segments = ReadOnly(), LogSegments[SegmentReader]()
    for name in fs.list(str(directory)):
        if name.endswith(LOG_SUFFIX):
            segments.add(SegmentReader.open_read_only(fs, str(directory), offset_of(name)))
    return segments


def end_of(segments: LogSegments[SegmentReader]) -> OffsetMetadata:
    active = segments.active
    return OffsetMetadata(active.next_offset(), active.base_offset, active.size)


LOOKED_AT = [
    partition
    for partition in partitions("kafka-4.3/3-rolls", "kafka-4.3/4-transactions", "kafka-4.3/7-lookups")
    if partition.name.startswith("image/")
]


@pytest.mark.parametrize("partition", LOOKED_AT, ids=str)
def test_offsets_times_and_aborted_transactions_are_those_of_the_log(partition: Partition, tmp_path: Path) -> None:
    segments = read_only(partition.path)
    reader = LogReader(segments, end_of(segments))
    copy = tmp_path / partition.path.name
    shutil.copytree(partition.path, copy)
    with UnifiedLog.open(copy, LogConfig(segment_index_bytes=4096), clean_shutdown=True, clock=ManualClock()) as log:
        end = log.local.log_end
        assert end_of(segments) == end
        log.update_high_watermark(end.offset)
        for offset in range(log.log_start_offset, end.offset + 1):
            found, told = log.read(offset, 300, Isolation.COMMITTED), log.watermarks.limit(Isolation.COMMITTED)
            read = reader.read(offset, 300, told, at_least_one=True, with_aborted=True)
            assert (read.start, read.size, read.aborted, read.read()) == (
                found.start, found.size, found.aborted, found.read(),
            )  # fmt: skip
        for segment, own in zip(segments, log.segments, strict=True):
            assert segment.max_timestamp == own.max_timestamp
            times = {batch.max_timestamp_ms + step for batch in segment.log.batches() for step in (-1, 0, 1)}
            for time_ms in times:
                assert segment.find_time(time_ms, 0) == own.find_time(time_ms, 0)
    assert not any(segment.wrong_index for segment in segments)


def test_the_zeros_behind_the_entries_of_a_crashed_index_do_not_count() -> None:
    directory = case("kafka-4.3/6-recovery") / "unclean" / "before" / "u-plain-0"
    segments = read_only(directory)
    active = segments.active
    assert (directory / f"{active.base_offset:020}.index").stat().st_size == 1024
    assert 0 < active.offset_index.entries < 10
    end = end_of(segments)
    assert end.offset == 36
    reader = LogReader(segments, end)
    for offset in range(36):
        assert reader.read(offset, 0, end).start.offset <= offset
    assert active.wrong_index is None


def test_a_segment_without_indexes_is_read_from_its_start(tmp_path: Path) -> None:
    source = case("kafka-4.3/3-rolls") / "image" / "roll-size-100-0"
    shutil.copytree(source, tmp_path / "bare-0", ignore=lambda _, names: [n for n in names if "index" in n])
    whole, bare = read_only(source), read_only(tmp_path / "bare-0")
    end = end_of(whole)
    assert end_of(bare) == end
    for offset in range(0, end.offset, 7):
        read = LogReader(bare, end).read(offset, 1000, end)
        assert read.start == LogReader(whole, end).read(offset, 1000, end).start
    assert not list((tmp_path / "bare-0").glob("*index*"))
