"""Damage by pages, lengths and single bytes, judged by a search that knows nothing of fsck.

A disk loses its way in pages: it exchanges them, writes one over another, or gives back zeros. Each case damages one
segment so, or flips bits of batch lengths, or puts in or takes out a byte. Then the repair must hold:

    1. Every batch in the repaired log is one that was written, at the offset it was written at, or the repair has left
       something to people.
    2. No batch is missing that a search over the damaged file proves sound: every position is tried, by the checksum,
       with the length that stands there or up to the next sound batch. The checksum does not cover the first 17 bytes
       of a header, so two more things are asked for. All 17 must be there: of a batch that shares some with the sound
       batch before it a byte is gone, and no search finds what is not in the file. And something must tell the offset:
       the field itself, or a sound neighbour that touches the batch. Of a batch that is alone in its file only the
       field can: with another offset in it, the file may as well be one of another log under the wrong name.
    3. What is not in the log any more lies in the quarantine, and no file changes without a line.
    4. A second repair has nothing to do.

`python -m tests.campaign --only pages --seed 7 --cases 1` repeats case 7.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from crc32c import crc32c

from tests.fsck.campaign import Broken, ensure_settled, untold
from tests.fsck.damages import tree, write
from tidelog.errors import TidelogError
from tidelog.fsck import check
from tidelog.fsck.mending import RepairResult, repair
from tidelog.log import LogConfig, ManualClock, UnifiedLog
from tidelog.log.checkpoints import CleanShutdownFile, OffsetCheckpoint
from tidelog.log.files import join, read_whole
from tidelog.log.names import HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, TopicPartition
from tidelog.records import Codec, NewRecord, build_batch, read_batches
from tidelog.testing.disk import SimulatedFileSystem

NOW = 1_700_000_000_000
ROOT, PARTITION = "/kafka", TopicPartition("t", 0)
DIRECTORY = f"{ROOT}/{PARTITION}"
HEADER, PREFIX, CRC_AT = 61, 12, 17
OUTSIDE = 17  # bytes of a batch that its checksum does not cover


class Written(NamedTuple):
    """A batch as it was written."""

    offset: int
    data: bytes
    is_alone: bool  # in its file

    @property
    def body(self) -> bytes:
        """The checksum and what it covers."""
        return self.data[CRC_AT:]


def a_root(rng: random.Random) -> tuple[SimulatedFileSystem, list[Written]]:
    """A log of some segments of small batches or larger ones, closed in good order or not, and what is in it."""
    disk = SimulatedFileSystem(ManualClock(NOW))
    disk.make_directory(DIRECTORY)
    config = LogConfig(segment_bytes=rng.choice((6_000, 20_000, 1 << 20)), index_interval_bytes=512, retention_ms=-1)
    log = UnifiedLog.open(DIRECTORY, config, clock=ManualClock(NOW), fs=disk, lock=False)
    largest = rng.choice((120, 120, 900, 5_000))
    epoch = 0
    for number in range(rng.randrange(40, 70)):
        records = [
            NewRecord(b"k%d" % number, rng.randbytes(rng.randrange(5, largest)), NOW + number)
            for _ in range(rng.randrange(1, 4))
        ]
        epoch += rng.random() < 0.03
        codec = rng.choice((Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4))
        data = build_batch(records[: 1 if largest > 900 else 3], codec=codec)
        log.append_as_leader(memoryview(bytearray(data)), epoch)
    log.update_high_watermark(log.log_end_offset)
    log.tick()
    log.flush()
    end = log.log_end_offset
    is_clean = rng.random() < 0.7
    log.close() if is_clean else log.release()
    for name, entries in (
        (RECOVERY_POINT_CHECKPOINT, {PARTITION: end} if is_clean else {}),
        (HIGH_WATERMARK_CHECKPOINT, {PARTITION: end}),
        (LOG_START_CHECKPOINT, {}),
    ):
        OffsetCheckpoint(disk, join(ROOT, name)).write(entries)
    if is_clean:
        CleanShutdownFile(disk, ROOT).write(1)
    disk.sync_all()
    written = [
        Written(batch.base_offset, bytes(batch.buffer), batch.size_in_bytes == len(data))
        for path, data in sorted(logs_of(disk).items())
        for batch in read_batches(data)
    ]
    return disk, written


def logs_of(disk: SimulatedFileSystem) -> dict[str, bytes]:
    return {path: data for path, data in tree(disk, DIRECTORY).items() if path.endswith(".log")}


# -- damage ----------------------------------------------------------------------------------------------------------


def _pages(data: bytes, rng: random.Random) -> tuple[int, int, int]:
    """A size of pages, and two of them that lie in the file as a whole; the same one twice if there is but one."""
    size = rng.choice([size for size in (512, 512, 4096) if len(data) >= 2 * size] or [max(len(data) // 2, 1)])
    count = len(data) // size
    return (size, *rng.sample(range(count), 2)) if count > 1 else (size, 0, 0)


def exchange_pages(data: bytearray, rng: random.Random) -> str:
    size, one, two = _pages(data, rng)
    first, second = (slice(page * size, (page + 1) * size) for page in (one, two))
    data[first], data[second] = data[second], data[first]
    return f"pages {one} and {two} of {size} bytes exchanged"


def duplicate_a_page(data: bytearray, rng: random.Random) -> str:
    size, one, two = _pages(data, rng)
    data[two * size : (two + 1) * size] = data[one * size : (one + 1) * size]
    return f"page {one} of {size} bytes written over page {two}"


def zero_a_page(data: bytearray, rng: random.Random) -> str:
    size, one, _ = _pages(data, rng)
    data[one * size : (one + 1) * size] = bytes(size)
    return f"page {one} of {size} bytes is zero"


def _starts(data: bytes) -> list[int]:
    starts, position = [], 0
    while position + PREFIX <= len(data):
        starts.append(position)
        position += PREFIX + int.from_bytes(data[position + 8 : position + 12], "big")
    return starts


def flip_a_length_bit(data: bytearray, rng: random.Random) -> str:
    start, bit = rng.choice(_starts(data)), rng.randrange(32)
    data[start + 8 + bit // 8] ^= 1 << bit % 8
    return f"bit {bit} of the length at {start} flipped"


def insert_a_byte(data: bytearray, rng: random.Random) -> str:
    at = rng.choice(_starts(data)) + rng.randrange(-3, 25) if rng.random() < 0.6 else rng.randrange(len(data))
    at, value = max(at, 0), rng.randrange(256)
    data.insert(at, value)
    return f"the byte {value} put in at {at}"


def remove_a_byte(data: bytearray, rng: random.Random) -> str:
    at = rng.choice(_starts(data)) + rng.randrange(-3, 25) if rng.random() < 0.6 else rng.randrange(len(data))
    at = min(max(at, 0), len(data) - 1)
    del data[at]
    return f"the byte at {at} taken out"


DEEDS: tuple[Callable[[bytearray, random.Random], str], ...] = (
    exchange_pages, duplicate_a_page, zero_a_page, flip_a_length_bit, insert_a_byte, remove_a_byte,
)  # fmt: skip


# -- the judge -------------------------------------------------------------------------------------------------------


def proven(data: bytes) -> set[bytes]:
    """What the checksums of all batches cover that can be found in a file, with the checksums: every position tried."""
    found: set[bytes] = set()
    starts, ends = [], [0]
    for start in range(len(data) - HEADER + 1):
        length = int.from_bytes(data[start + 8 : start + 12], "big")
        end = start + PREFIX + length
        is_frame = data[start + 16] == 2 and end - start >= HEADER and ends[-1] <= start < end <= len(data)
        if is_frame and _holds(data, start, end):
            found.add(data[start + CRC_AT : end])
            starts.append(start)
            ends.append(end)
    for end in (*starts, len(data)):
        before = max(other for other in ends if other <= end)
        for start in range(before, end - HEADER + 1):
            if data[start + 16] == 2 and data[start + 21] == 0 and _holds(data, start, end):
                found.add(data[start + CRC_AT : end])
    return found


def _holds(data: bytes, start: int, end: int) -> bool:
    stored = int.from_bytes(data[start + CRC_AT : start + CRC_AT + 4], "big")
    return bool(crc32c(data[start + CRC_AT + 4 : end]) == stored)


def judge(number: int) -> str:
    """Run one case; in a word what it was."""
    rng = random.Random(number)
    disk, written = a_root(rng)
    path = rng.choice(sorted(path for path, data in logs_of(disk).items() if data))
    data = bytearray(read_whole(disk, path))
    deed = DEEDS[number % len(DEEDS)]
    case = f"pages, case {number}: {path}: {deed(data, rng)}"
    write(disk, path, bytes(data))
    mended = disk.copy()
    try:
        result = repair(ROOT, clock=ManualClock(NOW), fs=mended, jobs=1)
    except TidelogError as error:  # any other exception is a crash, and `run` names its case
        raise Broken(f"{case}: {type(error).__name__}: {error}") from error
    _ensure_right(case, disk, mended, written, result)
    ensure_settled(case, mended, result, ROOT)
    return deed.__name__


def _ensure_right(
    case: str, disk: SimulatedFileSystem, mended: SimulatedFileSystem, written: Sequence[Written], result: RepairResult
) -> None:
    if result.failures:
        raise Broken(f"{case}: {result.failures}")
    again = check(ROOT, deep=True, fs=mended, jobs=1)
    if again.codes() - {finding.code for finding in result.left}:
        raise Broken(f"{case}: after the repair {[(one.code, one.message) for one in again.findings][:3]}")
    silent = untold(tree(disk, ROOT), tree(mended, ROOT), result)
    if silent:
        raise Broken(f"{case}: {silent} changed without a line; done: {result.done}")
    by_body = {batch.body: batch for batch in written}
    now = _batches_of(mended)
    for offset, data in now.items():
        right = by_body.get(data[CRC_AT:])
        if right is None or right.offset != offset:
            raise Broken(f"{case}: after the repair offset {offset} is {right and right.offset}; done: {result.done}")
        if right.data != data:
            raise Broken(f"{case}: the header of offset {offset} is another; done: {result.done}")
    there = {body for data in logs_of(disk).values() for body in proven(data)}
    kept = {data[CRC_AT:] for data in now.values()}
    lost = [
        batch.offset
        for number, batch in enumerate(written)
        if batch.body in there and batch.body not in kept and _has_known_offset(disk, written, number)
    ]
    if lost:
        raise Broken(f"{case}: the sound batches {lost} are lost; done: {result.done}")


def _has_known_offset(disk: SimulatedFileSystem, written: Sequence[Written], number: int) -> bool:
    """Whether the field of a batch or a neighbour that touches it tells its offset, in one of the damaged files."""
    batch = written[number]
    before = written[number - 1].body if number else b"\0"
    after = written[number + 1].body if number + 1 < len(written) else b"\0"
    for data in logs_of(disk).values():
        start = data.find(batch.body) - CRC_AT
        if start < 0:
            continue
        end = start + len(batch.data)
        is_touched = data[:start].endswith(before) or data[end + CRC_AT :].startswith(after)
        if data[start : start + 8] == batch.data[:8] or (is_touched and not batch.is_alone):
            return True
    return False


def _batches_of(disk: SimulatedFileSystem) -> Mapping[int, bytes]:
    return {
        batch.base_offset: bytes(batch.buffer)
        for _, data in sorted(logs_of(disk).items())
        for batch in read_batches(data)
    }


def run(seed: int, cases: int) -> Counter[str]:
    """Judge so many cases from the number `seed` on; how many there were of each kind of damage."""
    found: Counter[str] = Counter()
    for number in range(seed, seed + cases):
        try:
            found[f"pages-{judge(number)}"] += 1
        except Exception as error:
            error.add_note(f"pages, case {number}")
            raise
    return found
