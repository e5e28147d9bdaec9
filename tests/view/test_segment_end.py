"""The end of a segment that has no index: found by a walk over all of it, and the same as with one."""

import struct
from pathlib import Path

import pytest

from tests.log.logs import batch
from tidelog.errors import CorruptRecordError
from tidelog.records import Codec, NewRecord, build_message_set
from tidelog.view.files import ReadOnlyFiles
from tidelog.view.partition import PartitionView
from tidelog.view.segment import SegmentEnd, SegmentView

BATCHES = 9000  # some megabytes: windows of kernels, several of them
RECORDS = 5


@pytest.fixture(scope="module")
def content() -> tuple[bytes, int]:
    """The bytes of a log, and the size of a batch in it."""
    one = bytes(batch([NewRecord(b"key", bytes(240), 1_700_000_000_000)] * RECORDS, partition_leader_epoch=3))
    return b"".join(struct.pack(">q", number * RECORDS) + one[8:] for number in range(BATCHES)), len(one)


def end_of(root: Path, content: bytes, *, is_active: bool = True) -> SegmentEnd:
    directory = root / "topic-0"
    directory.mkdir(exist_ok=True)
    (directory / f"{0:020}.log").write_bytes(content)
    names = {".log": f"{0:020}.log"}
    return SegmentView(ReadOnlyFiles(), str(directory), 0, names, is_active=is_active).end


@pytest.mark.parametrize("is_active", [True, False])
def test_a_segment_without_an_index_ends_behind_its_last_batch(
    tmp_path: Path, content: tuple[bytes, int], is_active: bool
) -> None:
    data, _ = content
    assert len(data) > 10 << 20
    assert end_of(tmp_path, data, is_active=is_active) == SegmentEnd(len(data), BATCHES * RECORDS, 3, None)


@pytest.mark.parametrize("failing", [1, 700, 1022])
def test_the_last_batches_may_fail_while_they_are_written(
    tmp_path: Path, content: tuple[bytes, int], failing: int
) -> None:
    data, size = content
    sound = (BATCHES - failing) * size
    torn = bytearray(data)
    for position in range(sound, len(data), size):
        torn[position + 100] ^= 1
    end = end_of(tmp_path, bytes(torn) + data[:50])
    assert end[:3] == (sound, (BATCHES - failing) * RECORDS, 3)
    assert f"position {sound}: " in str(end.problem)


def test_more_failing_batches_are_damage(tmp_path: Path, content: tuple[bytes, int]) -> None:
    data, size = content
    torn = bytearray(data)
    for position in range((BATCHES - 1100) * size, len(data), size):
        torn[position + 100] ^= 1
    with pytest.raises(CorruptRecordError, match=rf"position {(BATCHES - 1024) * size}: .*fsck"):
        end_of(tmp_path, bytes(torn))


def test_a_length_that_cannot_be_is_the_end_of_the_active_segment(tmp_path: Path, content: tuple[bytes, int]) -> None:
    data, size = content
    sound = 8000 * size
    broken = data[: sound + 8] + b"\x00\x00\x00\x02" + data[sound + 12 : sound + size - 9]
    end = end_of(tmp_path, broken)
    assert end[:3] == (sound, 8000 * RECORDS, 3)
    with pytest.raises(CorruptRecordError, match=f"position {sound}: .*a batch length of 2"):
        end_of(tmp_path, broken, is_active=False)


def test_large_batches_and_those_of_old_formats_are_walked_over_too(tmp_path: Path) -> None:
    """One batch, or less, in each window."""
    large = bytes(batch([NewRecord(None, bytes(9 << 20), 1)]))
    small = bytes(batch(1))
    data = b"".join(struct.pack(">q", number) + small[8:] for number in range(5000))
    data += b"".join(struct.pack(">q", number) + large[8:] for number in range(5000, 5003))
    assert end_of(tmp_path, data)[:2] == (len(data), 5003)
    old = bytes(build_message_set(1, [NewRecord(b"k", bytes(300), 5)] * 6000, codec=Codec.NONE))
    assert end_of(tmp_path, old) == SegmentEnd(len(old), 6000, None, None)
    assert PartitionView.at(ReadOnlyFiles(), str(tmp_path / "topic-0")).log_end_offset == 6000
