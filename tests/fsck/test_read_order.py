"""Batches of a metadata log that are out of order: Kafka reads them where they stand.

What Kafka really does with such logs is compared in tests/compat/test_would_start.py.
"""

import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fsck.test_would_start import CASE, METADATA, newest, verdict_on
from tests.golden.corpus import case
from tidelog.fsck.kafka_loading import load_as_kafka
from tidelog.fsck.read_order import UnreachableEndError, batches_as_read, batches_read_again
from tidelog.fsck.rehearsal import RehearsalFileSystem
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import LOG_SUFFIX, file_name
from tidelog.protocol import message
from tidelog.records import NewRecord, build_batch, read_batches

END = 191  # of the metadata log
EPOCH = 1
FRAME = 1
INTERVAL = 4096  # of the bytes between two entries of an index
Segments = Sequence[tuple[int, Sequence[int]]]  # their base offsets, and those of their batches
KRAFT_VERSION = bytes([0, 0, 0, 5])  # the key of that control record


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(shutil.copytree(case(CASE) / "image", tmp_path / "root"))


def read_in(directory: Path, segments: Segments, start: int, value: bytes = b"v") -> tuple[list[int], list[int]]:
    """The offsets of the batches that Kafka reads of a log from an offset on, and that a leader reads again."""
    directory /= "t-0"
    directory.mkdir(parents=True)
    for base, offsets in segments:
        batches = [build_batch([NewRecord(None, value, 0)], base_offset=offset) for offset in offsets]
        (directory / file_name(base, LOG_SUFFIX)).write_bytes(b"".join(batches))
    fs = RehearsalFileSystem(LocalFileSystem())
    log = load_as_kafka(fs, str(directory), recovery_point=0, log_start=0, is_clean=False)
    try:
        once = [batch.base_offset for batch, _ in batches_as_read(fs, log, start)]
        return once, [batch.base_offset for batch, _ in batches_read_again(fs, log)]
    finally:
        log.release()


@pytest.mark.parametrize(
    ("segments", "start", "read"),
    [
        ([(0, [0, 1, 2, 3])], 0, [0, 1, 2, 3]),
        ([(0, [0, 1]), (2, [2, 3])], 1, [1, 2, 3]),
        ([(0, [0, 1, 2, 3])], 4, []),
        ([(0, [0, 3, 1, 2, 3])], 3, [3, 1, 2, 3]),  # a copy of a batch brings those after it
        ([(0, [0, 3, 1, 2, 4])], 2, [3, 1, 2, 4]),
        ([(0, [0, 2, 1]), (2, [2, 3])], 0, [0, 2, 1, 2, 3]),  # the segment is left at once
        ([(0, [0, 1]), (2, [2, 4, 3]), (4, [4, 5])], 3, [4, 3, 4, 5]),
    ],
)
def test_a_read_goes_on_to_the_end_of_its_segment(
    tmp_path: Path, segments: Segments, start: int, read: list[int]
) -> None:
    assert read_in(tmp_path, segments, start) == (read, [])


def test_a_log_whose_segment_ends_with_an_earlier_batch_is_read_for_ever(tmp_path: Path) -> None:
    with pytest.raises(UnreachableEndError, match="from offset 1 to the end of the log, 4"):
        read_in(tmp_path, [(0, [0, 1, 0]), (2, [2, 3])], 0)


def test_a_leader_reads_again_what_reaches_beyond_the_end(tmp_path: Path) -> None:
    assert read_in(tmp_path, [(0, [0, 1, 2, 3, 1])], 0) == ([0, 1, 2, 3, 1], [2, 3, 1])


def test_a_read_begins_where_the_index_says(tmp_path: Path) -> None:
    assert read_in(tmp_path, [(0, [9, 0, 1, 2, 3])], 2, bytes(INTERVAL)) == ([2, 3], [])
    # Without entries, the first batch is the one that reaches so far.
    assert read_in(tmp_path / "small", [(0, [9, 0, 1, 2, 3])], 2) == ([9, 0, 1, 2, 3], [9, 0, 1, 2, 3])


# -- the verdict -------------------------------------------------------------------------------------------------------


def framed(kind: str, **fields: object) -> bytes:
    schema = message(kind)
    assert schema.api_key is not None
    return bytes([FRAME, schema.api_key, 0]) + schema.write(schema.new(**fields), 0)


NOTHING, IMPOSSIBLE = framed("NoOpRecord"), framed("RemoveTopicRecord", topic_id=uuid.UUID(int=79))


def append(root: Path, offset: int, *values: bytes, key: bytes | None = None) -> bytes:
    records = [NewRecord(key, value, 0) for value in values]
    data = bytes(build_batch(records, base_offset=offset, partition_leader_epoch=EPOCH, is_control=key is not None))
    log = newest(root, LOG_SUFFIX)
    log.write_bytes(log.read_bytes() + data)
    return data


def end_snapshot_at(root: Path, offset: int) -> None:
    path = newest(root, ".checkpoint")
    path.rename(path.with_name(f"{offset:020}-{EPOCH:010}.checkpoint"))


@pytest.mark.parametrize(("first", "starts"), [(NOTHING, True), (IMPOSSIBLE, False)], ids=["possible", "impossible"])
def test_batches_before_the_end_of_the_snapshot_are_replayed_after_one_that_it_lacks(
    root: Path, first: bytes, starts: bool
) -> None:
    append(root, END, first)
    append(root, END + 1, NOTHING)
    end_snapshot_at(root, END + 1)
    assert verdict_on(root).starts
    log = newest(root, LOG_SUFFIX)
    *others, first_batch, last = [bytes(batch.buffer) for batch in read_batches(log.read_bytes())]
    log.write_bytes(b"".join([*others, last, first_batch, last]))
    assert verdict_on(root).starts is starts


@pytest.mark.parametrize(("first", "starts"), [(NOTHING, True), (IMPOSSIBLE, False)], ids=["possible", "impossible"])
def test_a_batch_that_the_snapshot_has_half_of_is_replayed_as_a_whole(root: Path, first: bytes, starts: bool) -> None:
    append(root, END, first, NOTHING)
    end_snapshot_at(root, END + 1)
    assert verdict_on(root).starts is starts


@pytest.mark.parametrize(("back", "starts"), [(0, True), (2, True), (3, None), (9, None)])
def test_a_leader_that_writes_at_offsets_it_has_read_is_elected_until_there_are_no_more(
    root: Path, back: int, starts: bool | None
) -> None:
    append(root, END - back - 1, NOTHING)
    found = verdict_on(root)
    assert found.starts is starts
    assert starts or "depends on how fast the controller is elected again" in str(found)


def test_a_leader_that_reads_a_control_record_again_gives_up(root: Path) -> None:
    value = message("KRaftVersionRecord").write(message("KRaftVersionRecord").new(kraft_version=1), 0)
    append(root, END, value, key=KRAFT_VERSION)
    assert verdict_on(root).starts
    append(root, END - 1, NOTHING)
    found = verdict_on(root)
    assert (found.starts, found.reason_path) == (False, str(newest(root, LOG_SUFFIX)))
    assert "a second KRAFT_VERSION record" in str(found)


def test_a_control_batch_may_go_back(root: Path) -> None:
    value = message("LeaderChangeMessage").write(message("LeaderChangeMessage").new(leader_id=1), 0)
    append(root, END, NOTHING)
    append(root, END - 9, value, key=bytes([0, 0, 0, 2]))
    append(root, END + 1, NOTHING)
    assert verdict_on(root).starts


def test_a_metadata_log_that_is_read_for_ever_keeps_kafka_from_starting(root: Path) -> None:
    append(root, END - 9, NOTHING)
    folder = root / METADATA
    batch = build_batch([NewRecord(None, NOTHING, 0)], base_offset=END, partition_leader_epoch=EPOCH)
    (folder / file_name(END, LOG_SUFFIX)).write_bytes(batch)
    found = verdict_on(root)
    assert (found.starts, found.reason_path) == (False, str(folder))
