"""The log engine: appending against a bare write, recovery against memcpy and against Apache Kafka, lookups."""

import gc
import os
import random
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.measure import GIGA, TURNS, Report, cpu_seconds
from tests.compat import kafka_tools
from tidelog.log import LogConfig, UnifiedLog
from tidelog.records import BatchBuilder, NewRecord
from tidelog.records.checksum import crc32c_of

RECOVERED_BYTES = 512 << 20
LOOKUPS = 300
START_MS = 1_700_000_000_000
SMALL_SEGMENTS = LogConfig(segment_bytes=300_000, segment_index_bytes=4096, index_interval_bytes=4096)
LOGARITHMIC = 2.0  # a thousand times as many segments may cost so many times as much
LOGARITHMIC_COLD = 6.0  # likewise; the files of an old segment have to be opened first, those of the only one are open
COLD_LOOKUPS = 5
_SEQUENCE, _CRC, _TIMES = struct.Struct(">i"), struct.Struct(">I"), struct.Struct(">qq")


def run(report: Report) -> None:
    """Append, recovery and lookup rows."""
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as home:
        _append(report, Path(home))
        _recovery(report, Path(home))
        _lookups(report, Path(home))


class IdempotentBatches:
    """Batches of one producer, one behind the other, made from a pattern."""

    def __init__(self, records: int, value_size: int) -> None:
        builder = BatchBuilder(producer_id=1, producer_epoch=0, base_sequence=0)
        for number in range(records):
            builder.append(NewRecord(b"key-%04d" % number, b"v" * value_size, START_MS + number))
        self._pattern = builder.build()
        self._records = records
        self._sequence = 0
        self._time_ms = START_MS

    def take(self, count: int) -> list[memoryview]:
        """The next `count` batches."""
        return [memoryview(self._next()) for _ in range(count)]

    def copies(self, taken: list[memoryview]) -> list[memoryview]:
        """The same bytes, just written to memory: both ways of writing shall find them equally near."""
        return [memoryview(bytearray(batch)) for batch in taken]

    def _next(self) -> bytearray:
        batch = bytearray(self._pattern)
        _SEQUENCE.pack_into(batch, 53, self._sequence)
        _TIMES.pack_into(batch, 27, self._time_ms, self._time_ms + self._records - 1)
        _CRC.pack_into(batch, 17, crc32c_of(memoryview(batch)[21:]))
        self._sequence = (self._sequence + self._records) & 0x7FFFFFFF
        self._time_ms += self._records
        return batch


# -- append ------------------------------------------------------------------------------------------------------------


def _append(report: Report, home: Path) -> None:
    for name, records, value_size, per_turn in (("16 KiB", 140, 100, 300), ("one-record", 1, 100, 1500)):
        batches = IdempotentBatches(records, value_size)
        with UnifiedLog.open(home / f"append{records}-0", LogConfig()) as log, _bare_file(home / "bare") as bare:
            appended, written, ratios = [], [], []
            for turn in range(3 * TURNS + 1):
                taken = batches.take(per_turn)
                gc.collect()
                append_us = _per_call(lambda batch, log=log: log.append_as_leader(batch, 0), batches.copies(taken))
                write_us = _per_call(lambda batch, bare=bare: os.write(bare, batch), batches.copies(taken))
                if turn:  # the first one warms up
                    appended.append(append_us)
                    written.append(write_us)
                    ratios.append(append_us / write_us)
        report.add(f"bare os.write of a {name} batch", statistics.median(written), "us")
        if records > 1:
            report.add(f"append of an idempotent {name} batch", statistics.median(appended), "us",
                       against="os.write", ratio=statistics.median(ratios), at_most=2.5)  # fmt: skip
        else:
            report.add(f"append of an idempotent {name} batch", statistics.median(appended), "us", at_most=15)


def _per_call(work: Callable[[memoryview], object], batches: list[memoryview]) -> float:
    """Microseconds of CPU per batch, with the garbage collector off."""
    gc.disable()
    try:
        started = time.process_time_ns()
        for batch in batches:
            work(batch)
        return (time.process_time_ns() - started) / len(batches) / 1000
    finally:
        gc.enable()


@contextmanager
def _bare_file(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        path.unlink()


# -- recovery ----------------------------------------------------------------------------------------------------------


def _recovery(report: Report, home: Path) -> None:
    directory = home / "orders-0"
    batches = IdempotentBatches(140, 100)
    with UnifiedLog.open(directory, LogConfig()) as log:
        while log.size < RECOVERED_BYTES:
            for batch in batches.take(1000):
                log.append_as_leader(batch, 0)
        size = log.size

    def recover() -> None:
        UnifiedLog.open(directory, LogConfig()).release()

    seconds = report.add_speed("recovery of a 512 MiB segment, 16 KiB batches", recover, size)
    if (why := kafka_tools.missing()) is not None:
        print(f"not measured against Kafka's recovery: {why}")
        return
    # A broker recovers in a process that has just been started: that is the comparison. A warmed-up JVM stands beside.
    ratios, kafka_seconds = [], []
    for _ in range(3):
        ours = cpu_seconds(recover, runs=1)
        kafka_seconds += _kafka_recovery(directory, warm_up=0, runs=1)
        ratios.append(kafka_seconds[-1] / ours)
    report.add(
        "Apache Kafka 4.3's recovery, as a broker starts", size / statistics.median(kafka_seconds) / GIGA, "GB/s"
    )
    report.add("recovery against Apache Kafka 4.3", size / seconds / GIGA, "GB/s",
               against="Kafka's", ratio=statistics.median(ratios), at_least=3)  # fmt: skip
    warm = statistics.median(_kafka_recovery(directory, warm_up=5, runs=5))
    report.add("Apache Kafka 4.3's recovery, JVM warmed up", size / warm / GIGA, "GB/s")


def _kafka_recovery(directory: Path, *, warm_up: int, runs: int) -> list[float]:
    """CPU seconds of Kafka's own LogSegment.recover on the same directory, of the thread that runs it."""
    done = subprocess.run(
        ["java", "-cp", f"{kafka_tools.jars()}/*", str(Path(__file__).with_name("Recover.java")), str(directory),
         str(warm_up)],
        input="\n" * runs, capture_output=True, text=True, check=True, timeout=600,
    )  # fmt: skip
    answers = done.stdout.split("ready\n")[1].splitlines()
    return [int(answer.split()[0]) / 1e9 for answer in answers]


# -- lookups -----------------------------------------------------------------------------------------------------------


def _lookups(report: Report, home: Path) -> None:
    """Offsets and times looked up in logs of 1 to 1,000 segments of about 300 KB, one index entry per batch.

    Warm: CPU time, files open and in the page cache. Cold: the time until an answer, with nothing of the log in the
    page cache; the log was opened and has learnt the times of its segments. Before it has, a lookup by time asks every
    segment up to the one it is for: that is a row without a goal.
    """
    one: dict[str, float] = {}
    for count in (1, 10, 100, 1000):
        directory = home / f"lookups{count}-0"
        _write_segments(directory, count)
        chance = random.Random(count)
        opened_ms, first_us = _first_lookups(directory, chance)
        report.add(f"open a log of {count} segments, clean", opened_ms, "ms")
        report.add(f"first lookup by time right after open, {count} segments", first_us, "us")
        for heat, lookups, goal in (("cold", _cold_lookups, LOGARITHMIC_COLD), ("warm", _warm_lookups, LOGARITHMIC)):
            for name, taken in zip(("offset", "time"), lookups(directory, chance), strict=True):
                ratio = taken / one.setdefault(f"{name}, {heat}", taken)
                report.add(f"lookup by {name}, {count} segments, {heat}", taken, "us",
                           against="1 segment", ratio=ratio, at_most=goal)  # fmt: skip


def _write_segments(directory: Path, count: int) -> None:
    batches = IdempotentBatches(40, 100)
    with UnifiedLog.open(directory, SMALL_SEGMENTS) as log:
        while len(log.segments) < count or log.active_segment.size < 250_000:
            for batch in batches.take(20):
                log.append_as_leader(batch, 0)


def _first_lookups(directory: Path, chance: random.Random) -> tuple[float, float]:
    """Milliseconds of CPU to open the log, and microseconds to the answer by time that is asked for at once."""
    opened_ms, taken = [], []
    for _ in range(3):
        _drop_from_page_cache(directory)
        started = time.process_time()
        with UnifiedLog.open(directory, SMALL_SEGMENTS, clean_shutdown=True) as log:
            opened_ms.append((time.process_time() - started) * 1000)
            target = START_MS + chance.randrange(log.log_end_offset)
            taken.append(_wall_us(lambda log=log, target=target: log.offset_for_time(target)))
    return statistics.median(opened_ms), statistics.median(taken)


def _cold_lookups(directory: Path, chance: random.Random) -> tuple[float, float]:
    """Microseconds to the answer by offset and by time, of a log that has done its upkeep."""
    by_offset, by_time = [], []
    for _ in range(COLD_LOOKUPS):
        with UnifiedLog.open(directory, SMALL_SEGMENTS, clean_shutdown=True) as log:
            while log.local.segments.has_unknown_times:
                time.sleep((log.local.schedule.next_due_in_ms or 0) / 1000)
                log.tick()
            offset, target = chance.randrange(log.log_end_offset), START_MS + chance.randrange(log.log_end_offset)
            _drop_from_page_cache(directory)
            by_offset.append(_wall_us(lambda log=log, offset=offset: log.read(offset, 1)))
            _drop_from_page_cache(directory)
            by_time.append(_wall_us(lambda log=log, target=target: log.offset_for_time(target)))
    return statistics.median(by_offset), statistics.median(by_time)


def _warm_lookups(directory: Path, chance: random.Random) -> tuple[float, float]:
    """Microseconds of CPU per lookup by offset and by time."""
    by_offset, by_time = [], []
    with UnifiedLog.open(directory, SMALL_SEGMENTS, clean_shutdown=True) as log:
        offsets = [chance.randrange(log.log_end_offset) for _ in range(LOOKUPS)]
        times = [START_MS + offset for offset in offsets]
        for _ in range(4):  # the first turn opens the files that will be asked
            by_offset.append(_per_lookup(lambda offset: log.read(offset, 1), offsets))
            by_time.append(_per_lookup(log.offset_for_time, times))
    return min(by_offset), min(by_time)


def _per_lookup(work: Callable[[int], object], targets: list[int]) -> float:
    started = time.process_time_ns()
    for target in targets:
        work(target)
    return (time.process_time_ns() - started) / len(targets) / 1000


def _wall_us(work: Callable[[], object]) -> float:
    started = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - started) / 1000


def _drop_from_page_cache(directory: Path) -> None:
    for path in directory.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
