"""Recovery has two gaits, kernels over whole windows and batch by batch. Whatever the log, they leave the same files.

A log is made of raw segment files: producers of several epochs, transactions, leader epochs, timestamps out of order,
gaps as compaction leaves them, old formats, and damage of all kinds. It is opened twice as after a crash, once with
kernels from the first byte on and once without, and closed again.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.behaviours import behaviour
from tests.log.segments_language import ABORT, COMMIT, Partition
from tidelog.log import UnifiedLog, batch_windows
from tidelog.log.names import LOG_SUFFIX, SNAPSHOT_SUFFIX, file_name
from tidelog.records import (
    BatchBuilder,
    Codec,
    EndTxnMarker,
    NewRecord,
    build_end_txn_marker,
    build_message_set,
    empty_batch,
)
from tidelog.testing.disk import SimulatedFileSystem

ALWAYS, NEVER = 0, 1 << 62
NOW = 1_000_000


class Writer:
    """Batches one behind the other, as leaders, producers and coordinators could have written them."""

    def __init__(self, rng: random.Random, *, has_txns: bool, has_legacy: bool, value_size: int = 80) -> None:
        self.offset = 0
        self._rng = rng
        self._has_txns = has_txns
        self._has_legacy = has_legacy
        self._value_size = value_size
        self._leader_epoch = rng.choice([-1, 0, 3])
        self._time = NOW
        self._producers = rng.choice([1, 2, 6])
        self._epochs: Counter[int] = Counter()
        self._sequences: dict[tuple[int, int], int] = {}
        self._open: set[tuple[int, int]] = set()

    def batch(self) -> bytes:
        """The next batch."""
        rng = self._rng
        self._time += rng.choice([0, 0, 1, 5, 40, -30])
        if rng.random() < 0.05:
            self._leader_epoch += rng.choice([1, 1, 2, 5])
        if rng.random() < 0.05:
            self.offset += rng.randrange(1, 50)
        kind = rng.random()
        if self._has_legacy and kind < 0.1:
            data = self._legacy()
        elif self._open and kind < 0.2:
            data = self._marker()
        elif kind < 0.25:
            data = self._empty()
        else:
            data = self._records()
        return bytes(data)

    def _legacy(self) -> bytearray:
        records = [NewRecord(b"k", b"v" * self._rng.randrange(30), self._time)] * self._rng.randrange(1, 4)
        codec = self._rng.choice([Codec.NONE, Codec.GZIP])
        data = build_message_set(self._rng.choice([0, 1]), records, base_offset=self.offset, codec=codec)
        self.offset += len(records)
        return data

    def _marker(self) -> bytearray:
        producer_id, epoch = self._rng.choice(sorted(self._open))
        self._open.discard((producer_id, epoch))
        self.offset += 1
        return build_end_txn_marker(
            EndTxnMarker(self._rng.choice([ABORT, COMMIT]), self._rng.randrange(3)),
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp_ms=self._time,
            offset=self.offset - 1,
            partition_leader_epoch=self._leader_epoch,
        )

    def _empty(self) -> bytearray:
        base = self.offset
        self.offset += self._rng.randrange(1, 9)
        return empty_batch(
            base_offset=base,
            last_offset=self.offset - 1,
            max_timestamp_ms=self._time,
            partition_leader_epoch=self._leader_epoch,
            producer_id=self._rng.choice([-1, 5, 6]),
            producer_epoch=0,
            base_sequence=self._rng.randrange(10),
        )

    def _records(self) -> bytearray:
        rng = self._rng
        options: dict[str, object] = {}
        if rng.random() < 0.7:
            producer_id = rng.randrange(self._producers)
            is_transactional = self._has_txns and producer_id < 3
            if not is_transactional and rng.random() < 0.03:
                self._epochs[producer_id] += 1
            epoch = self._epochs[producer_id]
            if is_transactional:
                self._open.add((producer_id, epoch))
            options = {
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "base_sequence": self._sequences.get((producer_id, epoch), 0),
                "is_transactional": is_transactional,
            }
        builder = BatchBuilder(
            base_offset=self.offset,
            partition_leader_epoch=self._leader_epoch,
            codec=rng.choice([Codec.NONE, Codec.NONE, Codec.LZ4]),
            **options,  # type: ignore[arg-type]
        )
        for _ in range(rng.randrange(1, 5)):
            builder.append(NewRecord(b"k", b"v" * rng.randrange(self._value_size), self._time + rng.randrange(-20, 20)))
        if options:
            self._sequences[options["producer_id"], options["producer_epoch"]] = (  # type: ignore[index]
                options["base_sequence"] + builder.count  # type: ignore[operator]
            )
        self.offset = builder.next_offset
        return builder.build()


def segments_of(writer: Writer, rng: random.Random, *, batches: int, segments: int = 4) -> dict[int, bytearray]:
    """The `.log` files of a log by base offset."""
    files: dict[int, bytearray] = {0: bytearray()}
    for _ in range(batches):
        if rng.random() < (segments - 1) / batches:
            files[writer.offset] = bytearray()
        files[max(files)] += writer.batch()
    return files


def nothing(rng: random.Random, segments: dict[int, bytearray]) -> None:
    """No damage."""


def flipped_bit(rng: random.Random, segments: dict[int, bytearray]) -> None:
    data = segments[rng.choice(list(segments))]
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def torn_tail(rng: random.Random, segments: dict[int, bytearray]) -> None:
    data = segments[max(segments)]
    del data[len(data) - rng.randrange(min(len(data), 500) + 1) :]


def zeros_behind(rng: random.Random, segments: dict[int, bytearray]) -> None:
    segments[max(segments)] += bytes(rng.randrange(1, 5000))


def going_back(rng: random.Random, segments: dict[int, bytearray]) -> None:
    """A whole segment that lies there twice."""
    data = segments[rng.choice(list(segments))]
    data += bytes(data)


def far_ahead(rng: random.Random, segments: dict[int, bytearray]) -> None:
    """Offsets that do not fit the indexes."""
    first = min(segments)
    data = segments[first]
    segments[first] = data + BatchBuilder(base_offset=2**31 + 5).append(NewRecord(b"k", b"v", NOW)).build()
    for base in list(segments):
        if base != first:
            del segments[base]


Damage = Callable[[random.Random, dict[int, bytearray]], None]
DAMAGES: list[Damage] = [
    nothing,
    flipped_bit,
    torn_tail,
    zeros_behind,
    going_back,
    far_ahead,
]


def partition_with(segments: dict[int, bytearray], interval: int) -> Partition:
    partition = Partition("/data", fs=SimulatedFileSystem(), index_interval_bytes=interval, segment_index_bytes=1 << 16)
    partition.clock.set_to(NOW)
    partition.fs.make_directory(partition.directory)
    for base, data in segments.items():
        partition.write(file_name(base, LOG_SUFFIX), bytes(data))
    return partition


def opened(partition: Partition, kernel_from: int, window: int, **opening: Any) -> UnifiedLog:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_windows, "_KERNEL_FROM", kernel_from)
        patch.setattr(batch_windows, "WINDOW_BYTES", window)
        return partition.open(**opening)


def state_of(log: UnifiedLog) -> object:
    """What the process knows and the files do not say."""
    return (
        log.log_end_offset,
        log.first_unstable_offset,
        log.leader_epochs.entries,
        [(segment.base_offset, segment.size, segment.max_timestamp) for segment in log.segments],
        {
            producer_id: (
                entry.epoch,
                entry.coordinator_epoch,
                entry.last_timestamp_ms,
                entry.txn_first_offset,
                list(entry.batches),
            )
            for producer_id, entry in log.producers.producers.items()
        },
        list(log.producers.producers),
        list(log.local.collect_aborted(0, log.log_end_offset)),
    )


def assert_same_both_ways(
    segments: dict[int, bytearray], *, interval: int, window: int, kernel_from: int = ALWAYS
) -> Partition:
    by_kernels, by_batches = partition_with(segments, interval), partition_with(segments, interval)
    one, two = opened(by_kernels, kernel_from, window), opened(by_batches, NEVER, window)
    assert state_of(one) == state_of(two)
    assert by_kernels.contents == by_batches.contents
    one.close()
    two.close()
    assert by_kernels.contents == by_batches.contents

    # Once more, with nothing to recover, but producers to be followed from the oldest snapshot on.
    for partition in (by_kernels, by_batches):
        for name in partition.files(SNAPSHOT_SUFFIX)[1:]:
            partition.remove(name)
    one, two = opened(by_kernels, kernel_from, window, clean=True), opened(by_batches, NEVER, window, clean=True)
    assert state_of(one) == state_of(two)
    one.close()
    two.close()
    assert by_kernels.contents == by_batches.contents
    return by_kernels


@behaviour("LDR-005", "SEG-022", "SEG-023")
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("seed", range(6))
def test_kernels_and_batch_by_batch_leave_the_same_files(seed: int, damage: Damage) -> None:
    rng = random.Random(seed * 100 + DAMAGES.index(damage))
    writer = Writer(rng, has_txns=rng.random() < 0.4, has_legacy=rng.random() < 0.15)
    segments = segments_of(writer, rng, batches=rng.choice([5, 80, 150]))
    damage(rng, segments)
    assert_same_both_ways(segments, interval=rng.choice([0, 100, 1000]), window=rng.choice([500, 1 << 13, 1 << 22]))


@behaviour("LDR-005")
def test_a_segment_of_more_than_a_megabyte_is_recovered_by_kernels_as_batch_by_batch() -> None:
    rng = random.Random(1)
    writer = Writer(rng, has_txns=False, has_legacy=False, value_size=600)
    segments = segments_of(writer, rng, batches=2_500, segments=1)
    assert len(segments[0]) > batch_windows._KERNEL_FROM
    partition = assert_same_both_ways(segments, interval=4096, window=1 << 18, kernel_from=batch_windows._KERNEL_FROM)
    assert len(partition.read(file_name(0, ".index"))) > 100 * 8
    assert len(partition.read(file_name(0, LOG_SUFFIX))) == len(segments[0])
