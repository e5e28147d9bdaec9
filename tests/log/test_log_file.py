"""The `.log` file by itself: what is appended is there, what is preallocated is not, what is cut is gone."""

import threading
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tidelog.errors import CorruptionError, InvalidRequestError
from tidelog.log.batch_scan import read_batch, scan_batches
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.log_file import LogFile
from tidelog.log.lookup import SegmentLookup
from tidelog.log.offset_index import OffsetIndex
from tidelog.log.offsets import TimestampAndOffset
from tidelog.log.time_index import TimeIndex
from tidelog.records import BatchBuilder, Codec, NewRecord, build_batch, build_message_set
from tidelog.records.batches import batch_of
from tidelog.records.java import MAX_INT32

FS = LocalFileSystem()


def a_file(tmp_path: Path, *batches: bytes | bytearray) -> LogFile:
    log = LogFile.create(FS, str(tmp_path / "00000000000000000000.log"))
    for batch in batches:
        log.append(batch)
    return log


def a_batch(offset: int, count: int = 1, *, time_ms: int = 0, epoch: int = 0) -> bytearray:
    records = [NewRecord(b"k", b"v%d" % number, time_ms) for number in range(count)]
    return build_batch(records, base_offset=offset, partition_leader_epoch=epoch)


@behaviour("REC-081")
def test_a_file_does_not_grow_beyond_what_a_position_can_express(tmp_path: Path) -> None:
    log = a_file(tmp_path)
    log.size = MAX_INT32 - 10  # as if so much had been written: nothing of it is touched
    with pytest.raises(InvalidRequestError, match="at most 2147483647"):
        log.append(bytes(11))
    assert log.size == MAX_INT32 - 10
    assert FS.stat(log.path).size == 0


@behaviour("REC-082")
def test_a_larger_file_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    with open(path, "wb") as file:
        file.truncate(MAX_INT32 + 1)  # sparse: it takes no room
    with pytest.raises(CorruptionError, match="2147483648 bytes"):
        LogFile.open(FS, str(path))


@behaviour("REC-084")
def test_the_size_is_that_of_the_file_after_every_append(tmp_path: Path) -> None:
    log = a_file(tmp_path)
    for offset in range(5):
        log.append(a_batch(offset))
        assert log.size == (tmp_path / "00000000000000000000.log").stat().st_size


@pytest.mark.parametrize("zeros", [0, 2, 4, 5, 6])
@behaviour("REC-085")
def test_stray_zeros_behind_the_last_batch_do_not_disturb(tmp_path: Path, zeros: int) -> None:
    log = a_file(tmp_path, a_batch(0), a_batch(1), bytes(zeros))
    assert [batch.base_offset for batch in log.batches()] == [0, 1]


@behaviour("REC-086")
def test_a_reader_beside_the_writer_finds_every_byte_up_to_the_size_it_saw(tmp_path: Path) -> None:
    log = a_file(tmp_path, a_batch(0))
    batches = [a_batch(offset, 3) for offset in range(1, 1500, 3)]
    is_done = threading.Event()
    seen: list[tuple[int, int]] = []

    def read() -> None:
        while not is_done.is_set() or len(seen) < 2:
            size = log.size
            seen.append((size, len(log.file.read(0, size))))

    reader = threading.Thread(target=read)
    reader.start()
    for batch in batches:
        log.append(batch)
    is_done.set()
    reader.join()
    assert all(size == found for size, found in seen)


@behaviour("REC-087")
def test_reading_does_not_move_where_the_next_batch_goes(tmp_path: Path) -> None:
    log = a_file(tmp_path, a_batch(0), a_batch(1))
    batches = log.batches()
    next(batches)
    log.append(a_batch(2))
    assert [batch.base_offset for batch in log.batches()] == [0, 1, 2]


def a_lookup(tmp_path: Path, log: LogFile) -> SegmentLookup:
    index = OffsetIndex(FS, str(tmp_path / "0.index"), 0, 80)
    times = TimeIndex(FS, str(tmp_path / "0.timeindex"), 0, 120)
    return SegmentLookup(0, log.file, log.size, index, times)


@behaviour("REC-088")
def test_a_search_skips_the_offsets_that_are_not_there(tmp_path: Path) -> None:
    log = a_file(tmp_path, a_batch(0), a_batch(1), a_batch(2), a_batch(50))
    found = a_lookup(tmp_path, log).find_offset(3)
    assert found is not None
    assert (found.base_offset, found.position, found.size) == (50, 3 * found.size, len(a_batch(50)))


@behaviour("REC-089")
def test_one_byte_less_than_a_batch_is_no_batch(tmp_path: Path) -> None:
    log = a_file(tmp_path, a_batch(0))
    assert list(log.batches(0, log.size - 1)) == []
    assert len(list(log.batches(0, log.size))) == 1


@behaviour("REC-090")
def test_cutting_to_the_size_it_has_leaves_a_file_alone(tmp_path: Path) -> None:
    log = a_file(tmp_path, a_batch(0), a_batch(1))
    FS.set_modified(log.path, 1_000_000)
    assert log.truncate_to(log.size) == 0
    assert log.modified_ms == 1_000_000
    half = log.size // 2
    assert log.truncate_to(half) == half
    assert (log.size, FS.stat(log.path).size) == (half, half)
    assert log.modified_ms != 1_000_000
    with pytest.raises(InvalidRequestError, match="cannot be cut"):
        log.truncate_to(half + 1)


@behaviour("REC-091", "REC-092")
def test_what_is_preallocated_is_room_and_not_content(tmp_path: Path) -> None:
    path = str(tmp_path / "1.log")
    log = LogFile.create(FS, path, 1 << 20)
    assert (log.size, FS.stat(path).size) == (0, 1 << 20)
    assert FS.stat(a_file(tmp_path).path).size == 0
    log.append(a_batch(0))
    written = log.size
    log.close()
    assert FS.stat(path).size == written
    again = LogFile.open(FS, path)
    assert again.size == written
    again.append(a_batch(1))
    assert [batch.base_offset for batch in again.batches()] == [0, 1]


@pytest.mark.parametrize("magic", [0, 1, 2])
@behaviour("REC-093")
def test_a_search_by_time_tells_the_epoch_where_the_format_has_one(tmp_path: Path, magic: int) -> None:
    times = {5: (10, 0), 6: (11, 1)}  # offset: time and epoch
    if magic == 2:
        log = a_file(tmp_path, *(a_batch(o, time_ms=time, epoch=epoch) for o, (time, epoch) in times.items()))
    else:
        log = a_file(
            tmp_path,
            *(
                build_message_set(magic, [NewRecord(b"k", b"v", time if magic else -1)], base_offset=o)
                for o, (time, _) in times.items()
            ),
        )
    find = a_lookup(tmp_path, log).find_time
    epoch_of = {offset: epoch if magic == 2 else None for offset, (_, epoch) in times.items()}
    if magic == 0:
        assert [find(time, 0) for time in (9, 10, 11, 12)] == [None] * 4
        return
    first, second = TimestampAndOffset(10, 5, epoch_of[5]), TimestampAndOffset(11, 6, epoch_of[6])
    assert [find(time, 0) for time in (9, 10, 11, 12)] == [first, first, second, None]


@behaviour("REC-095")
def test_a_scan_tells_who_wrote_a_batch(tmp_path: Path) -> None:
    idempotent = BatchBuilder(base_offset=0, producer_id=15, producer_epoch=3, base_sequence=21)
    idempotent.append(NewRecord(b"k", b"v", 7)).append(NewRecord(b"k", b"v", 9))
    open_txn = BatchBuilder(base_offset=2, producer_id=15, producer_epoch=3, base_sequence=23, is_transactional=True)
    open_txn.append(NewRecord(b"k", b"v", 8))
    log = a_file(tmp_path, idempotent.build(), open_txn.build())
    first, second = log.batches()
    assert (first.producer_id, first.producer_epoch, first.base_sequence, first.last_sequence) == (15, 3, 21, 22)
    assert (first.base_offset, first.last_offset, first.max_timestamp_ms, first.is_transactional) == (0, 1, 9, False)
    assert (second.base_offset, second.base_sequence, second.is_transactional) == (2, 23, True)


@behaviour("REC-096", "REC-097")
def test_a_batch_that_was_cut_ends_the_scan(tmp_path: Path) -> None:
    log = a_file(tmp_path, a_batch(0), a_batch(1))
    log.truncate_to(log.size - 13)
    assert [batch.base_offset for batch in log.batches()] == [0]
    assert list(scan_batches(log.file, 0, 0)) == []
    assert list(scan_batches(log.file, MAX_INT32, MAX_INT32)) == []


@pytest.mark.parametrize("codec", Codec)
@behaviour("REC-098")
def test_a_batch_read_from_a_file_is_the_batch_that_was_written(tmp_path: Path, codec: Codec) -> None:
    batch = build_batch([NewRecord(b"k%d" % n, b"v" * n, n) for n in range(20)], codec=codec)
    log = a_file(tmp_path, a_batch(0), batch)
    _, info = log.batches()
    again = read_batch(log.file, info)
    assert again == batch
    assert [record.value for record in batch_of(again)] == [b"v" * n for n in range(20)]
