"""Producer snapshots: their bytes, which are Kafka's, and what is not accepted as one."""

import contextlib
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviours import behaviour
from tests.golden import corpus
from tests.log.producers import NOW
from tidelog.errors import CorruptIndexError, InvalidRequestError
from tidelog.log.java_map import JavaLongMap, java_bucket
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.producer_entry import BatchMetadata, ProducerEntry
from tidelog.log.producer_snapshot import build_snapshot, parse_snapshot, write_snapshot
from tidelog.records.checksum import crc32c_of

EMPTY = bytes.fromhex("0001 48674bc7 00000000")
ONE_ENTRY = bytes.fromhex(
    "0001 2a604c62 00000001"
    "00000000000003e8 0003 00000009 0000000000000068 00000004 0000018bcfe56800 00000007 ffffffffffffffff"
)

INT16, INT32, INT64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))


def with_checksum(body: bytes, version: int = 1) -> bytes:
    return struct.pack(">hI", version, crc32c_of(body)) + body


# -- the format ----------------------------------------------------------------------------------------------------


def test_an_empty_state_takes_ten_bytes() -> None:
    assert build_snapshot([]) == EMPTY
    assert parse_snapshot(EMPTY) == []


def test_an_entry_takes_forty_six_bytes() -> None:
    entry = ProducerEntry(1000, 3, 7, NOW, None, [BatchMetadata(9, 104, 4, NOW)])
    assert build_snapshot([entry]) == ONE_ENTRY
    assert parse_snapshot(ONE_ENTRY) == [entry]


@behaviour("PSM-047")
def test_entries_with_and_without_a_batch_come_back(tmp_path: Path) -> None:
    entries = [
        ProducerEntry(1, 2, 3, -1, 100, [BatchMetadata(1, 2, 3, -1)]),
        ProducerEntry(11, 12, 13, 123456),
    ]
    path = tmp_path / "any.snapshot"
    write_snapshot(LocalFileSystem(), str(path), entries, sync=True)
    assert parse_snapshot(path.read_bytes()) == entries
    assert path.stat().st_size == 10 + 2 * 46


def test_of_several_batches_the_newest_is_kept() -> None:
    entry = ProducerEntry(1, 2, 3, NOW, None, [BatchMetadata(1, 20, 0, NOW - 9), BatchMetadata(4, 23, 2, NOW)])
    (kept,) = parse_snapshot(build_snapshot([entry]))
    assert kept.batches == [BatchMetadata(4, 23, 2, NOW)]


@given(st.lists(st.tuples(INT64, INT16, INT32, INT64, INT32, INT64, INT32, INT64), max_size=5))
def test_any_entries_are_read_as_they_stand(rows: list[tuple[int, ...]]) -> None:
    body = struct.pack(">i", len(rows)) + b"".join(struct.pack(">qhiqiqiq", *row) for row in rows)
    for row, entry in zip(rows, parse_snapshot(with_checksum(body)), strict=True):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn = row
        assert (entry.producer_id, entry.epoch, entry.coordinator_epoch) == (producer_id, epoch, coordinator_epoch)
        assert entry.last_timestamp_ms == timestamp
        assert entry.txn_first_offset == (txn if txn >= 0 else None)
        assert entry.batches == ([BatchMetadata(sequence, offset, delta, timestamp)] if offset >= 0 else [])


def test_a_number_that_does_not_fit_its_field_is_refused() -> None:
    with pytest.raises(InvalidRequestError):
        build_snapshot([ProducerEntry(1, epoch=40_000)])


# -- damage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(len(ONE_ENTRY)))
def test_a_snapshot_that_was_cut_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptIndexError):
        parse_snapshot(ONE_ENTRY[:size])


@pytest.mark.parametrize("position", range(len(ONE_ENTRY)))
def test_a_snapshot_with_a_changed_byte_is_corrupt(position: int) -> None:
    changed = bytearray(ONE_ENTRY)
    changed[position] ^= 0x40
    with pytest.raises(CorruptIndexError):
        parse_snapshot(bytes(changed))


@pytest.mark.parametrize("version", [0, 2, -1, 32767])
def test_a_snapshot_of_another_version_is_corrupt(version: int) -> None:
    with pytest.raises(CorruptIndexError, match=f"version {version}"):
        parse_snapshot(with_checksum(bytes(4), version))


@pytest.mark.parametrize("count", [-1, -(2**31), 2, 2**31 - 1])
def test_a_count_that_the_bytes_do_not_hold_is_corrupt(count: int) -> None:
    with pytest.raises(CorruptIndexError, match=f"promises {count} entries"):
        parse_snapshot(with_checksum(struct.pack(">i", count) + ONE_ENTRY[10:]))


def test_bytes_behind_the_entries_are_read_over_if_the_checksum_covers_them() -> None:
    assert parse_snapshot(with_checksum(ONE_ENTRY[6:] + b"more")) == parse_snapshot(ONE_ENTRY)
    with pytest.raises(CorruptIndexError, match="checksum"):
        parse_snapshot(ONE_ENTRY + b"more")


@given(st.binary(max_size=120))
def test_arbitrary_bytes_raise_nothing_else(data: bytes) -> None:
    for snapshot in (data, with_checksum(data)):
        with contextlib.suppress(CorruptIndexError):
            parse_snapshot(snapshot)


def test_a_longer_file_of_the_same_name_is_not_cut(tmp_path: Path) -> None:
    """As Kafka writes it. What results is found to be corrupt when it is read."""
    path = tmp_path / "00000000000000000007.snapshot"
    path.write_bytes(ONE_ENTRY)
    write_snapshot(LocalFileSystem(), str(path), [], sync=False)
    assert path.read_bytes() == EMPTY + ONE_ENTRY[10:]
    with pytest.raises(CorruptIndexError):
        parse_snapshot(path.read_bytes())


# -- what Kafka wrote ----------------------------------------------------------------------------------------------

DAMAGED = {
    "written-by-1.0.0/bad-snapshot/mixed-0/00000000000000000008.snapshot",
    "written-by-1.0.0/bad-snapshot/mixed-0/00000000000000000009.snapshot",
    "written-by-1.0.0/bad-snapshot/mixed-0/00000000000000000044.snapshot",
    "clean/before/c-snap-corrupt-0/00000000000000000040.snapshot",
    "unclean/before/u-snap-corrupt-0/00000000000000000039.snapshot",
}


def golden_snapshots(below: str = "") -> Iterator[tuple[str, bytes]]:
    for name in corpus.case_names(below):
        for path in sorted(corpus.case(name).rglob("*.snapshot")):
            yield path.relative_to(corpus.case(name)).as_posix(), path.read_bytes()


def java_order_of(entries: list[ProducerEntry]) -> list[ProducerEntry]:
    producers: JavaLongMap[ProducerEntry] = JavaLongMap()
    for entry in entries:
        producers[entry.producer_id] = entry
    return [producers[producer_id] for producer_id in producers.java_order()]


def test_every_snapshot_of_kafka_is_written_again_byte_by_byte() -> None:
    seen = 0
    for name, data in golden_snapshots():
        if name in DAMAGED:
            with pytest.raises(CorruptIndexError):
                parse_snapshot(data)
        else:
            assert build_snapshot(parse_snapshot(data)) == data, name
            seen += 1
    assert seen == 1390


def test_every_snapshot_of_4_3_has_javas_order() -> None:
    """Whatever the order in which producers came, as long as those of one bucket came as they stand there."""
    rng = random.Random(1)
    seen = largest = 0
    for name, data in golden_snapshots(corpus.RELEASE):
        if name not in DAMAGED:
            entries = parse_snapshot(data)
            turns = [rng.random() for _ in range(16)]
            shuffled = sorted(entries, key=lambda entry: turns[java_bucket(entry.producer_id, 16)])
            assert build_snapshot(java_order_of(shuffled)) == data, name
            seen, largest = seen + 1, max(largest, len(entries))
    assert (seen, largest) == (1324, 6)


def dump_line(entry: ProducerEntry) -> str:
    txn = "OptionalLong.empty" if entry.txn_first_offset is None else f"OptionalLong[{entry.txn_first_offset}]"
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} coordinatorEpoch: {entry.coordinator_epoch} "
        f"currentTxnFirstOffset: {txn} lastTimestamp: {entry.last_timestamp_ms}"
    )
    for batch in entry.batches:
        line += (
            f" firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
            f"lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} timestamp: {batch.timestamp_ms}"
        )
    return line


def test_every_field_is_what_kafkas_dump_tool_prints() -> None:
    compared = 0
    for partition in corpus.partitions(*corpus.case_names("kafka-4.3")):
        for path in sorted(partition.path.glob("*.snapshot")):
            if f"{partition.name}/{path.name}" in DAMAGED:
                continue
            printed = corpus.dump(partition, path.name).visible.splitlines()
            ours = [dump_line(entry) for entry in parse_snapshot(path.read_bytes())]
            assert printed == [f"Dumping {path.name}", *ours], f"{partition}/{path.name}"
            compared += 1
    assert compared == 1324
