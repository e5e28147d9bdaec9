"""The walk over records, against the same in words."""

import random

import numpy as np
import pytest

from tidelog.kernels.headers import check_headers, scan_headers
from tidelog.kernels.record_walk import BatchVerdict, header_columns, verdict_of, walk_records
from tidelog.records import Codec, Header, NewRecord, RecordBatch, build_batch, read_batches
from tidelog.records.checksum import crc32c_of


def a_batch(rng: random.Random, codec: Codec) -> bytearray:
    records = [
        NewRecord(
            rng.choice((None, b"", rng.randbytes(5))), rng.choice((None, rng.randbytes(rng.randrange(300)))),
            rng.choice((-1, rng.randrange(10_000))),
            [Header("h", rng.choice((None, b"v")))] * rng.randrange(3),
        )
        for _ in range(rng.randrange(1, 6))
    ]  # fmt: skip
    return build_batch(records, codec=codec)


def with_checksum(batch: bytearray) -> bytearray:
    batch[17:21] = crc32c_of(memoryview(batch)[21:]).to_bytes(4, "big")
    return batch


def by_kernel(data: bytes, *, checked: bool) -> list[int]:
    scan = scan_headers(data)
    return walk_records(data, check_headers(data, scan) if checked else scan).verdicts.tolist()


@pytest.mark.parametrize("codec", list(Codec))
def test_sound_batches_are_sound(codec: Codec) -> None:
    rng = random.Random(1)
    data = b"".join(bytes(a_batch(rng, codec)) for _ in range(30))
    walk = walk_records(data, scan_headers(data))
    assert walk.verdicts.tolist() == [BatchVerdict.SOUND] * 30
    assert walk.records == sum(batch.count for batch in read_batches(data) if isinstance(batch, RecordBatch))


@pytest.mark.parametrize("codec", list(Codec))
def test_damage_gets_the_verdict_that_reading_gives_it(codec: Codec) -> None:
    rng = random.Random(int(codec))
    met = set()
    for number in range(400):
        batch = a_batch(rng, codec)
        for _ in range(rng.randrange(1, 3)):
            batch[rng.randrange(57, len(batch)) if number % 3 else rng.randrange(23, 61)] = rng.randrange(256)
        if number % 10:
            with_checksum(batch)
        if int.from_bytes(batch[57:61], "big", signed=True) > 10_000:
            continue  # nobody waits for so many
        verdict, words = verdict_of(RecordBatch(batch))
        (found,) = by_kernel(bytes(batch), checked=False) if codec is Codec.NONE else (verdict,)
        assert found == verdict, words
        if verdict != BatchVerdict.WRONG_CHECKSUM:
            assert by_kernel(bytes(batch), checked=True) == [verdict], words
        assert (verdict == BatchVerdict.SOUND) == (words == "")
        met.add(verdict)
    assert met >= {BatchVerdict.SOUND, BatchVerdict.WRONG_CHECKSUM, BatchVerdict.BROKEN}


def test_offsets_outside_the_batch_and_another_largest_time_are_told() -> None:
    batch = build_batch([NewRecord(b"k", b"v", 5), NewRecord(b"k", b"v", 9)])
    batch[26] = 0  # the last offset delta
    assert by_kernel(bytes(with_checksum(batch)), checked=False) == [BatchVerdict.WRONG_OFFSETS]
    batch[26], batch[42] = 1, 8  # the largest timestamp
    assert by_kernel(bytes(with_checksum(batch)), checked=False) == [BatchVerdict.WRONG_TIME]
    assert verdict_of(RecordBatch(batch)) == (
        BatchVerdict.WRONG_TIME, "the largest timestamp is 9, the header says 8",
    )  # fmt: skip


@pytest.mark.parametrize("key", [None, b"k", bytes(200)])
@pytest.mark.parametrize("step", [0, 1, -1, 100, -100, 9000, 1 << 40])
def test_deltas_of_any_width_are_compared_with_the_header(step: int, key: bytes | None) -> None:
    for count in (1, 70, 9000):
        data = build_batch([NewRecord(key, b"v", (1 << 50) + step * number) for number in range(count)])
        for field, verdict in ((None, 0), (slice(23, 27), 3), (slice(35, 43), 4)):  # last offset delta, largest time
            batch = bytearray(data)
            if field is not None:
                batch[field] = (int.from_bytes(batch[field], "big", signed=True) - 1).to_bytes(
                    field.stop - field.start, "big", signed=True
                )
            with_checksum(batch)
            assert by_kernel(bytes(batch), checked=False) == [verdict]
            assert verdict_of(RecordBatch(batch))[0] == verdict


@pytest.mark.parametrize("number", [0, 69])
def test_an_offset_before_the_batch_is_told_wherever_it_stands(number: int) -> None:
    batch = build_batch([NewRecord(b"k", b"v", 100 * at) for at in range(70)])
    start = 61
    for _ in range(number):
        start += 1 + (batch[start] >> 1)
    at = start + 2 + (2 if number else 1)  # behind size, attributes and the delta of the time
    batch[at] |= 1  # folded, an odd number is negative
    assert by_kernel(bytes(with_checksum(batch)), checked=False) == [BatchVerdict.WRONG_OFFSETS]
    assert verdict_of(RecordBatch(batch))[0] == BatchVerdict.WRONG_OFFSETS


def test_a_broken_stream_does_not_hide_the_batches_around_it() -> None:
    rng = random.Random(4)
    batches = [a_batch(rng, codec) for codec in (Codec.LZ4, Codec.ZSTD, Codec.LZ4, Codec.NONE, Codec.GZIP) * 3]
    for number in (1, 5, 14):
        batches[number][61:] = bytes(len(batches[number]) - 61)
        with_checksum(batches[number])
    found = by_kernel(b"".join(map(bytes, batches)), checked=True)
    assert np.flatnonzero(found).tolist() == [1, 5, 14]


def test_columns_hold_what_the_headers_say_and_count_what_cannot_be() -> None:
    rng = random.Random(9)
    batches = [a_batch(rng, Codec.NONE) for _ in range(40)]
    batches[3][16], batches[7][22], batches[9][23] = 3, 6, 0x80  # magic, codec, last offset delta
    data = b"".join(map(bytes, batches))
    scan = scan_headers(data)
    columns, odd = header_columns(scan.rows, scan.positions)
    headers = [batch.header for batch in read_batches(data) if isinstance(batch, RecordBatch)]
    assert list(zip(*columns.tolist(), strict=True)) == [
        (
            position, header.batch_length + 12, header.base_offset, header.base_offset + header.last_offset_delta,
            header.max_timestamp_ms, header.partition_leader_epoch, header.records_count, header.attributes,
            header.magic, header.producer_id,
        )
        for position, header in zip(scan.positions.tolist(), headers, strict=True)
    ]  # fmt: skip
    assert odd == 3


@pytest.mark.parametrize("size", [None, 0, 1, 61, 62, 63, 64, 65, 127, 128, 8190, 8191, 8192, 8193, 70_000])
@pytest.mark.parametrize("headers", [0, 1])
def test_sizes_of_any_form_are_walked_over(size: int | None, headers: int) -> None:
    """Numbers of one, two and three bytes, and none at all, in each of the places where a size stands."""
    some = None if size is None else b"x" * size
    more = [Header("h", b"v")] * headers
    data = bytes(
        build_batch([NewRecord(some, b"v", 5, more), NewRecord(b"k", some, 900, more), NewRecord(some, some, 7)])
    )
    assert by_kernel(data, checked=False) == [BatchVerdict.SOUND]
    for position in range(61, min(len(data), 61 + 12)):
        damaged = bytearray(data)
        damaged[position] ^= 1  # of a number that is its sign
        with_checksum(damaged)
        assert by_kernel(bytes(damaged), checked=False) == [verdict_of(RecordBatch(damaged))[0]]


@pytest.mark.parametrize("step", [-1, -90, -9000])
def test_the_largest_time_is_found_where_all_records_are_older_than_the_base(step: int) -> None:
    batch = build_batch([NewRecord(b"k", b"v", (1 << 50) + step * number) for number in range(70)])
    batch[61 + 2] = 1  # the first delta, folded: -1
    for largest, verdict in ((-1, BatchVerdict.SOUND), (0, BatchVerdict.WRONG_TIME), (step, BatchVerdict.WRONG_TIME)):
        if largest == step == -1:
            continue
        batch[35:43] = ((1 << 50) + largest).to_bytes(8, "big")
        assert by_kernel(bytes(with_checksum(batch)), checked=False) == [verdict]
        assert verdict_of(RecordBatch(batch))[0] == verdict


@pytest.mark.parametrize("size", range(2, 64))
def test_a_key_that_leads_out_of_its_record_is_told(size: int) -> None:
    """Whatever stands where the value would be, behind the record or behind the batch."""
    for times in ((7, 8), (0, 300)):
        batch = build_batch([NewRecord(b"k", b"v", time) for time in times] + [NewRecord(b"k", b"v", 7)])
        at = batch.rindex(b"k")
        batch[at - 1] = 2 * size
        assert by_kernel(bytes(with_checksum(batch)), checked=False) == [BatchVerdict.BROKEN]
        assert verdict_of(RecordBatch(batch))[0] == BatchVerdict.BROKEN


@pytest.mark.parametrize(
    "times", [(-1, (1 << 63) - 1), (-1, 5, (1 << 63) - 1), ((1 << 63) - 10, (1 << 63) - 1), (0, (1 << 62) + 5, 7)]
)
def test_times_whose_sums_wrap_are_compared_as_they_are_read(times: tuple[int, ...]) -> None:
    """A delta of 64 bits reaches any time from any other, round the end of the numbers if need be."""
    batch = build_batch([NewRecord(b"k", b"v", time) for time in times])
    assert by_kernel(bytes(batch), checked=False) == [BatchVerdict.SOUND]
    assert verdict_of(RecordBatch(batch))[0] == BatchVerdict.SOUND
    for base, largest in (((1 << 63) - 1, -1), (-5, max(times)), (1 << 62, max(times))):
        batch[27:35], batch[35:43] = base.to_bytes(8, "big", signed=True), largest.to_bytes(8, "big", signed=True)
        with_checksum(batch)
        assert by_kernel(bytes(batch), checked=False) == [verdict_of(RecordBatch(batch))[0]]
