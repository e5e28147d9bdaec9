"""Readers in other threads while the owner appends, truncates, rolls and cleans: none sees what is not so."""

import threading
from collections.abc import Callable
from random import Random

import pytest

from tests.behaviours import behaviour
from tests.log.compaction.compacting import (
    a_cleaner,
    a_compacted_log,
    batches_in,
    delete,
    fill_segments,
    finished,
    put,
    settle,
    to_clean,
    transactional,
)
from tests.log.logs import a_log, all_replicated, batch, follow, lead
from tests.property.crash_disk import WatchedDisk
from tidelog.log import Isolation, UnifiedLog
from tidelog.records import read_batches
from tidelog.testing.disk import SimulatedFileSystem


class Readers:
    """Threads that run something once and again until they are told to stop.

    What went wrong in one of them is raised in the end.
    """

    def __init__(self, count: int, read: Callable[[], None]) -> None:
        self._read = read
        self._errors: list[BaseException] = []
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(count)]

    def _run(self) -> None:
        try:
            self._read()
            while not self._is_over.is_set():
                self._read()
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the test
            self._errors.append(error)

    def __enter__(self) -> "Readers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]


@behaviour("CLN-087")
@pytest.mark.parametrize("segment_bytes", [237, 1 << 20])
def test_what_a_reader_was_given_below_the_high_watermark_stays_so(segment_bytes: int) -> None:
    log = a_log("/data", fs=SimulatedFileSystem(), segment_bytes=segment_bytes)
    rng, consumed = Random(87), []
    offset = 0

    def consume() -> None:
        nonlocal offset
        for part in read_batches(log.read(offset, 1, Isolation.HIGH_WATERMARK).read()):
            consumed.append(bytes(part.buffer))
            offset = part.next_offset

    epoch, is_leader = 1, True
    with Readers(1, consume):
        while log.high_watermark < 1500:
            end = log.log_end_offset
            if rng.random() < 0.5:
                count = rng.randint(1, 9)
                if is_leader:
                    lead(log, count, epoch=epoch)
                    log.raise_high_watermark(max(end, log.high_watermark))
                else:
                    follow(log, batch(count, base_offset=end, partition_leader_epoch=epoch))
                    log.update_high_watermark(end)
            else:
                is_leader, epoch = not is_leader, epoch + 1
                if not is_leader:
                    log.truncate_to(log.high_watermark)
            if rng.random() < 0.05:
                log.roll()
    while offset < log.high_watermark:
        consume()
    stored = [bytes(part.buffer) for part in batches_in(log)]
    assert len(consumed) > 200
    assert consumed == stored[: len(consumed)]


def a_log_of_everything(disk: SimulatedFileSystem | WatchedDisk) -> UnifiedLog:
    log = a_compacted_log("/data", fs=disk, segment_bytes=400, index_interval_bytes=50)
    one, two = transactional(log, 1, 2)
    for number in range(4):
        put(log, 1, 2, 3, number + 10)
        one(4, 5)
        two(1, 6)
        (one.abort if number % 2 else one.commit)()
        two.commit()
        delete(log, number + 9)
    fill_segments(log, len(log.segments) + 2)
    all_replicated(log)
    return log


def last_values(log: UnifiedLog, isolation: Isolation) -> dict[bytes | None, int]:
    """The offset of the last record of each key that is not deleted, as one reader sees it."""
    found: dict[bytes | None, int] = {}
    previous = -1
    for record in log.records(isolation=isolation):
        assert record.offset > previous
        previous = record.offset
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record.offset
    return found


def test_readers_beside_many_rounds_see_the_last_value_of_every_key() -> None:
    log = a_log_of_everything(SimulatedFileSystem())
    expected = last_values(log, Isolation.COMMITTED)
    scans = 0

    def scan() -> None:
        nonlocal scans
        assert last_values(log, Isolation.COMMITTED) == expected
        scans += 1

    with Readers(2, scan):
        for _ in range(12):
            finished(a_cleaner(log, capacity=4).clean(to_clean(log)))
            finished(a_cleaner(log).clean(to_clean(log)))
    settle(log)  # old files stay as long as readers may have them, and so do tombstones
    assert scans >= 2


def test_a_reader_that_comes_at_any_moment_of_a_round_sees_the_last_value_of_every_key() -> None:
    readers: list[threading.Thread] = []
    answers: list[object] = []
    is_watched = False

    def read() -> None:
        for segment in log.segments:
            segment.release_indexes()
        try:
            answers.append(last_values(log, Isolation.COMMITTED))
        except BaseException as error:  # noqa: BLE001 - looked at in the thread of the test
            answers.append(error)

    def start_reading() -> None:
        if is_watched:
            readers.append(threading.Thread(target=read))
            readers[-1].start()

    log = a_log_of_everything(WatchedDisk(SimulatedFileSystem(), start_reading))
    expected = last_values(log, Isolation.COMMITTED)
    is_watched = True
    finished(a_cleaner(log).clean(to_clean(log)))
    is_watched = False
    for reader in readers:
        reader.join()
    assert len(answers) == len(readers) > 50
    assert [answer for answer in answers if answer != expected] == []
    assert log.failure is None
