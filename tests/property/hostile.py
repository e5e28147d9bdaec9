"""Damaged batches whose checksums hold, and the judge who reads each of them both ways.

A checksum protects against accidents, not against whoever writes the batch. Here valid batches of all shapes are
damaged on purpose, in places where damage is most likely to be believed (lengths, counts, ends of numbers), and sealed
again. Then `tidelog.records` and `tidelog.columns` must say the same: the same rows, or an error of the same class
from the tree in `tidelog.errors`, and nothing else, ever. The input lies against a guard page, and the kernels are
called once more by hand with every target between guard pages (see `direct.py`).

    run(seed, cases)    judges cases; the first disagreement is raised with what is needed to see it again
    judge(data)         judges one

Case i of a seed depends on the two numbers alone.
"""

import random
import struct
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tests.property.direct import DirectEncoder, DirectKernels
from tests.property.guard_pages import Guarded
from tests.property.reference import Row, header_rows, rows_in, rows_of
from tidelog.columns import ColumnDecoder, scan, summarize
from tidelog.errors import CorruptRecordError, TidelogError
from tidelog.kernels.validate import BatchFacts, validate_batch
from tidelog.records import (
    BatchBuilder,
    BatchHeader,
    Codec,
    Header,
    NewRecord,
    TimestampType,
    build_message_set,
    compress,
)
from tidelog.records.batch import BATCH_HEADER_SIZE, PREFIX_SIZE
from tidelog.records.checksum import crc32_of, crc32c_of
from tidelog.records.varint import read_varint, read_varlong, write_varint, write_varlong

MAX_DECOMPRESSED = 1 << 20  # a case is small; whatever grows beyond this is a bomb
_ROOM = 1 << 18
_STEP = 64  # cases whose rows are compared at once
_SOURCES = 160

Pieces = list[bytes]


class Disagreement(AssertionError):
    """The two ways of reading differ, or one of them failed with an error that is not ours."""

    def __init__(self, what: str, data: bytes, seed: int | None = None, case: int | None = None) -> None:
        where = "" if seed is None else f"seed {seed}, case {case}: "
        super().__init__(f"{where}{what}\n  bytes.fromhex({data.hex()!r})")
        self.data = data


# -- valid batches, in pieces ------------------------------------------------------------------------------------------


class BatchSource(NamedTuple):
    """A version 2 batch: its header, and its records cut into their fields. Piece 0 of a record is its length."""

    header: BatchHeader
    codec: Codec
    records: list[Pieces]


class MessageSource(NamedTuple):
    """A message set of magic 0 or 1: its messages cut into their fields; what the wrapper says, if there is one."""

    magic: int
    codec: Codec
    offset: int
    attributes: int
    messages: list[Pieces]


_SIZES = (0, 1, 1, 2, 3, 5, 9, 30, 31, 32, 33, 61, 63, 64, 65, 130, 255, 256, 257, 300)
_TIMES = (-1, 0, 5, 1_700_000_000_000, 1_700_000_000_001, 1_699_999_999_000, 2**62, 2**63 - 1)


def _some_bytes(rng: random.Random) -> bytes | None:
    return None if rng.random() < 0.15 else rng.randbytes(rng.choice(_SIZES))


def _some_headers(rng: random.Random) -> tuple[Header, ...]:
    if rng.random() < 0.6:
        return ()
    names = ("", "a", "trace", "h\u00e9", "\u65e5\u672c")
    return tuple(Header(rng.choice(names), _some_bytes(rng)) for _ in range(rng.choice((1, 1, 2, 3))))


def _some_records(rng: random.Random, with_headers: bool = True) -> list[NewRecord]:
    return [
        NewRecord(
            _some_bytes(rng), _some_bytes(rng), rng.choice(_TIMES[:6]), _some_headers(rng) if with_headers else ()
        )
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4, 6)))
    ]


def _batch_source(rng: random.Random) -> BatchSource:
    options: dict[str, Any] = {"base_offset": rng.choice((0, 7, 2**40, 2**63 - 10))}
    if rng.random() < 0.4:
        options |= {"producer_id": 9, "producer_epoch": 1, "base_sequence": rng.choice((0, 5, 2**31 - 1))}
    if rng.random() < 0.2:
        options |= {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time_ms": 77}
    builder = BatchBuilder(**options)
    for record in _some_records(rng):
        builder.append(record)
    batch = builder.build()
    codec = rng.choice((Codec.NONE, Codec.NONE, Codec.NONE, *Codec))
    header = BatchHeader.unpack(batch)
    header = header._replace(attributes=header.attributes | codec)
    return BatchSource(header, codec, list(_records_in_pieces(bytes(batch[BATCH_HEADER_SIZE:]))))


def _records_in_pieces(body: bytes) -> Iterator[Pieces]:
    position, end = 0, len(body)

    def take(read: Callable[..., tuple[int, int]]) -> int:
        nonlocal position
        start = position
        value, position = read(body, position, end)
        pieces.append(body[start:position])
        return value

    def take_bytes(size: int) -> None:
        nonlocal position
        pieces.append(body[position : position + max(size, 0)])
        position += max(size, 0)

    while position < end:
        pieces: Pieces = []
        take(read_varint)  # length
        take_bytes(1)  # attributes
        take(read_varlong)  # timestamp delta
        take(read_varint)  # offset delta
        take_bytes(take(read_varint))  # key
        take_bytes(take(read_varint))  # value
        for _ in range(2 * take(read_varint)):  # headers
            take_bytes(take(read_varint))
        yield pieces


def _message_source(rng: random.Random) -> MessageSource:
    magic = rng.choice((0, 1, 1))
    by_broker = magic == 1 and rng.random() < 0.3
    records = _some_records(rng, with_headers=False)
    plain = build_message_set(magic, records, log_append_time_ms=77)
    codec = rng.choice((Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4))
    offset = rng.choice((0, len(records) - 1, 2**40, 2**63 - 1))
    return MessageSource(magic, codec, offset, codec | by_broker << 3, list(_messages_in_pieces(bytes(plain))))


def _messages_in_pieces(message_set: bytes) -> Iterator[Pieces]:
    position = 0
    while position < len(message_set):
        magic = message_set[position + 16]
        pieces: Pieces = []
        for size in (8, 4, 4, 1, 1, *((8,) if magic else ())):  # offset, size, crc, magic, attributes, timestamp
            pieces.append(message_set[position : position + size])
            position += size
        for _ in range(2):  # key, value
            pieces.append(message_set[position : position + 4])
            size = max(int.from_bytes(pieces[-1], "big", signed=True), 0)
            pieces.append(message_set[position + 4 : position + 4 + size])
            position += 4 + size
        yield pieces


# -- damage ------------------------------------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    out = bytearray()
    (write_varint if -(2**31) <= value < 2**31 else write_varlong)(out, value)
    return bytes(out)


_VARINTS = (
    *(_varint(value) for value in (-1, 0, 1, -2, 6, 63, 64, -64, -65, 127, 128, 8191, 8192, 2**31 - 1, -(2**31))),
    *(_varint(value) for value in (2**31, 2**63 - 1, -(2**63))),
    *(bytes.fromhex(text) for text in ("8000", "8100", "8080808000", "8180808000", "ffffffff7f", "ffffffff1f")),
    *(bytes.fromhex(text) for text in ("ffffffffff01", "808080808000", "80", "ff", "ffffffffff")),
    *(bytes.fromhex(text) for text in ("80" * 9 + "00", "ff" * 9 + "01", "ff" * 9 + "7f", "ff" * 10, "ff" * 10 + "01")),
)
_INT32S = tuple(
    struct.pack(">i", value) for value in (-1, 0, 1, -2, 13, 14, 15, 22, 255, 256, 2**16, 2**31 - 1, -(2**31))
)
_INT64S = tuple(struct.pack(">q", value) for value in (-1, 0, 1, 2, 7, 2**31, 2**62, 2**63 - 1, -(2**63)))
_BOUNDARY_BYTES = (0x00, 0x01, 0x7F, 0x80, 0xFF)


def _damage_record(rng: random.Random, pieces: Pieces) -> None:
    """Rewrite a field of a record; mostly its length is made to fit again, so that the damage is reached."""
    index = rng.randrange(len(pieces))
    piece = pieces[index]
    choice = rng.random()
    if choice < 0.4:
        pieces[index] = rng.choice(_VARINTS)
    elif choice < 0.7 and piece:  # one more or one less than what is right is believed most easily
        value, _ = read_varlong(piece[:5] + b"\0", 0, 6)
        pieces[index] = _varint(value + rng.choice((-2, -1, 1, 2)))
    elif choice < 0.8:
        pieces[index] = b""
    elif choice < 0.9:
        pieces.insert(index, rng.randbytes(rng.choice((1, 1, 2, 10))))
    else:
        pieces[index] = rng.randbytes(max(len(piece), 1))
    if index and rng.random() < 0.75:
        pieces[0] = _varint(sum(map(len, pieces[1:])))


def _damage_message(rng: random.Random, pieces: Pieces) -> None:
    """Rewrite a field of a message; mostly its size is made to fit again."""
    index = rng.randrange(len(pieces))
    size = len(pieces[index])
    choice = rng.random()
    if size == 4 and choice < 0.6:
        pieces[index] = rng.choice(_INT32S)
    elif size == 4 and choice < 0.9:
        value = int.from_bytes(pieces[index], "big") + rng.choice((-2, -1, 1, 2))
        pieces[index] = (value % 2**32).to_bytes(4, "big")
    elif size == 8 and choice < 0.9:
        pieces[index] = rng.choice(_INT64S)
    elif size == 1 and choice < 0.9:
        pieces[index] = bytes([rng.choice((0, 1, 2, 3, 4, 5, 7, 8, 9, 0x7F, 0x80, 0xFF))])
    else:
        pieces[index] = rng.randbytes(rng.choice((0, 1, 4, size)))
    if index != 1 and rng.random() < 0.75:
        pieces[1] = struct.pack(">i", sum(map(len, pieces[2:])))


def _damage_bytes(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Change some bytes, whatever they mean."""
    if not data:
        return rng.randbytes(rng.choice((0, 1, 7)))
    out = bytearray(data)
    start = rng.randrange(len(out))
    end = min(len(out), start + rng.choice((1, 1, 2, 4, 8, 40)))
    choice = rng.random()
    if choice < 0.35:
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    elif choice < 0.6:
        for _ in range(rng.choice((1, 1, 2))):
            out[rng.randrange(len(out))] = rng.choice(_BOUNDARY_BYTES)
    elif choice < 0.7:
        out[start:end] = rng.choice(_VARINTS)
    elif choice < 0.8:
        del out[start:]
    elif choice < 0.87:
        del out[start:end]
    elif choice < 0.94:
        out[start:start] = out[start:end]
    else:
        out[start:end] = other[start : start + rng.choice((1, 8, 100))]
    return bytes(out)


def _some_header(rng: random.Random, header: BatchHeader) -> BatchHeader:
    count = header.records_count
    number = rng.choice((-1, 0, 1, 2**31 - 1, -(2**31)))
    field, value = rng.choice(
        (
            ("records_count", rng.choice((count + 1, count - 1, 0, 0, -1, 2**31 - 1, -(2**31), 100))),
            ("records_count", rng.choice((count + 1, count - 1, 0, 0, -1, 2**31 - 1, -(2**31), 100))),
            ("attributes", rng.choice((header.attributes ^ 1 << rng.randrange(16), rng.randrange(2**16))) - 2**15),
            ("attributes", header.attributes & ~7 | rng.randrange(8)),
            ("attributes", header.attributes ^ 8),
            ("last_offset_delta", number),
            ("base_sequence", number),
            ("partition_leader_epoch", number),
            ("base_offset", rng.choice((-1, 2**63 - 1, -(2**63)))),
            ("base_timestamp_ms", rng.choice((-1, 2**63 - 1, -(2**63)))),
            ("max_timestamp_ms", rng.choice((-2, 2**63 - 1, -(2**63)))),
            ("producer_id", rng.choice((-1, 2**63 - 1, -(2**63)))),
            ("producer_epoch", rng.choice((-1, 2**15 - 1, -(2**15)))),
            ("magic", rng.choice((0, 1, 3, 127, -128, -1))),
        )
    )
    return header._replace(**{field: value})


def _seal(data: bytearray) -> bytes:
    """Give an entry of any magic the length and the checksum it must have."""
    if len(data) < PREFIX_SIZE + 6:
        return bytes(data)
    struct.pack_into(">i", data, 8, len(data) - PREFIX_SIZE)
    if 2 <= data[16] < 128:
        if len(data) > 21:
            struct.pack_into(">I", data, 17, crc32c_of(memoryview(data)[21:]))
    else:
        struct.pack_into(">I", data, 12, crc32_of(memoryview(data)[16:]))
    return bytes(data)


def _damage_batch(rng: random.Random, source: BatchSource, other: bytes) -> bytes:
    header, records = source.header, source.records
    if rng.random() < 0.55:
        records = [list(pieces) for pieces in records]
        for _ in range(rng.choice((1, 1, 1, 2))):
            _damage_record(rng, rng.choice(records))
    body = b"".join(piece for pieces in records for piece in pieces)
    if rng.random() < 0.35:
        body = _damage_bytes(rng, body, other)
    if source.codec is not Codec.NONE:
        body = compress(source.codec, body)
        if rng.random() < 0.25:
            body = _damage_bytes(rng, body, other)
    if rng.random() < 0.3:
        header = _some_header(rng, header)
    if rng.random() < 0.01:  # nothing at all, and a claim about it
        header, body = header._replace(records_count=rng.choice((-(2**31), -1, 0, 1))), b""
    return _seal(header.seal(body))


def _damage_messages(rng: random.Random, source: MessageSource, other: bytes) -> bytes:
    messages = source.messages
    if rng.random() < 0.6:
        messages = [list(pieces) for pieces in messages]
        for _ in range(rng.choice((1, 1, 2))):
            _damage_message(rng, rng.choice(messages))
    if source.codec is Codec.NONE:
        data = b"".join(messages[0])
        return _seal(bytearray(_damage_bytes(rng, data, other) if rng.random() < 0.3 else data))
    inner = b"".join(piece for pieces in messages for piece in pieces)
    if rng.random() < 0.3:
        inner = _damage_bytes(rng, inner, other)
    value = compress(source.codec, inner, magic=source.magic)
    if rng.random() < 0.25:
        value = _damage_bytes(rng, value, other)
    time = b"" if source.magic == 0 else struct.pack(">q", rng.choice(_TIMES))
    wrapper: Pieces = [
        struct.pack(">q", source.offset),
        bytes(8),  # size and crc, sealed below
        bytes([source.magic, source.attributes]),
        time,
        struct.pack(">ii", -1, len(value)) + value,
    ]
    data = b"".join(wrapper)
    if rng.random() < 0.1:
        data = _damage_bytes(rng, data, other)
    return _seal(bytearray(data))


class Cases:
    """The cases of a seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        rng = random.Random(seed)
        self._batches = [_batch_source(rng) for _ in range(_SOURCES)]
        self._messages = [_message_source(rng) for _ in range(_SOURCES // 3)]
        self._other = rng.randbytes(400)

    def __getitem__(self, case: int) -> bytes:
        """One damaged batch or entry, or now and then several, or one that is cut off."""
        rng = random.Random(self.seed << 40 ^ case)
        if rng.random() < 0.04:
            return b"".join(self._one(rng) for _ in range(rng.choice((2, 2, 3, 5))))
        data = self._one(rng)
        if data and rng.random() < 0.06:  # after it was sealed: outside of the checksum, or in spite of it
            out = bytearray(data)
            out[rng.randrange(min(len(out), rng.choice((17, 61, 10_000))))] ^= 1 << rng.randrange(8)
            return bytes(out)
        return data

    def _one(self, rng: random.Random) -> bytes:
        if rng.random() < 0.25:
            return _damage_messages(rng, rng.choice(self._messages), self._other)
        return _damage_batch(rng, rng.choice(self._batches), self._other)


# -- the judge ---------------------------------------------------------------------------------------------------------

_BOUNDS = ((-(2**63), 2**63 - 1), (0, 1_700_000_000_000), (6, 76))


class Outcome(NamedTuple):
    """What one way of reading gave: rows, or what came before an error, and the error's class."""

    rows: list[Any]
    error: type[Exception] | None


def _is_one_batch(data: bytes) -> bool:
    return (
        len(data) >= BATCH_HEADER_SIZE
        and int.from_bytes(data[8:12], "big", signed=True) == len(data) - PREFIX_SIZE
        and 2 <= data[16] < 128
    )


class Judge:
    """Reads cases both ways and compares."""

    def __init__(self) -> None:
        self._memory = Guarded(_ROOM)
        self._decoder = ColumnDecoder(max_decompressed=MAX_DECOMPRESSED)
        self._direct = DirectKernels()
        self._encoder = DirectEncoder()
        self._waiting: list[tuple[int, bytes, list[Row], list[pa.RecordBatch]]] = []

    def judge(self, case: int, data: bytes) -> str:
        """Judge one case, except that rows are compared in `settle`. The word to count it under."""
        view = self._memory.put(data, at_start=bool(case & 1))
        truth = self._read(lambda: rows_of(data, max_size=MAX_DECOMPRESSED))
        found = self._read(lambda: self._decoder.decode(view))
        if found.error is not truth.error:
            raise Disagreement(f"columns {_name(found.error)}, records {_name(truth.error)}", data)
        rows = sum(batch.num_rows for batch in found.rows)
        if rows > len(truth.rows) or (truth.error is None and rows < len(truth.rows)):
            raise Disagreement(f"{rows} rows, {len(truth.rows)} records", data)
        self._waiting.append((case, data, truth.rows[:rows], found.rows))
        if _is_one_batch(data):
            self._validate(case, data, view, truth)
        self._direct.judge(data, view, truth.rows, truth.error)
        if case % 8 == 0:
            self._look_at_headers(data, view)
        return _name(truth.error)

    @staticmethod
    def _read(read: Callable[[], Iterator[Any]]) -> Outcome:
        rows: list[Any] = []
        try:
            for row in read():
                rows.append(row)  # noqa: PERF402 - what came before an error counts
        except TidelogError as error:
            return Outcome(rows, type(error))
        return Outcome(rows, None)

    @staticmethod
    def _validate(case: int, data: bytes, view: memoryview, truth: Outcome) -> None:
        earliest_ms, latest_ms = _BOUNDS[case % len(_BOUNDS)]
        error = facts = None
        try:
            facts = validate_batch(view, earliest_ms=earliest_ms, latest_ms=latest_ms, max_size=MAX_DECOMPRESSED)
        except TidelogError as raised:
            error = type(raised)
        if data[16] != 2:  # a file's reader takes higher magics for 2, a broker refuses them
            if error is not CorruptRecordError:
                raise Disagreement(f"validate_batch {_name(error)} for magic {data[16]}", data)
            return
        if error is not truth.error:
            raise Disagreement(f"validate_batch {_name(error)}, records {_name(truth.error)}", data)
        if facts is not None:
            wanted = _facts(data, truth.rows, earliest_ms, latest_ms)
            if facts != wanted:
                raise Disagreement(f"validate_batch {facts}, records {wanted}", data)

    def _look_at_headers(self, data: bytes, view: memoryview) -> None:
        """Scan and summarize, which believe headers and do not look at records."""
        truth = self._read(lambda: header_rows(data))
        try:
            found = scan(view, verify=True).to_pylist()
        except CorruptRecordError as error:
            if truth.error is None:  # records may have found something else wrong before, which a scan passes over
                raise Disagreement(f"scan {error}", data) from None
            return
        if found[: len(truth.rows)] != truth.rows or (truth.error is None and len(found) > len(truth.rows)):
            raise Disagreement(f"scan {found}\n  records {truth.rows}", data)
        with suppress(TidelogError):
            summarize([view], verify=True)

    def encode(self, rng: random.Random) -> None:
        """Let the encoder's kernel write some rows between guard pages."""
        self._encoder.judge(rng, _some_records(rng))

    def settle(self) -> None:
        """Compare the rows of all cases since the last time."""
        waiting, self._waiting = self._waiting, []
        found = rows_in(batch for _, _, _, batches in waiting for batch in batches)
        if found == [row for _, _, rows, _ in waiting for row in rows]:
            return
        for _, data, rows, batches in waiting:
            if rows_in(batches) != rows:
                raise Disagreement(f"columns {rows_in(batches)}\n  records {rows}", data)


def _name(error: type[Exception] | None) -> str:
    return "rows" if error is None else error.__name__


def _facts(data: bytes, rows: list[Row], earliest_ms: int, latest_ms: int) -> BatchFacts:
    """`reference.facts_of`, from rows that are there already."""
    base_offset = int.from_bytes(data[:8], "big", signed=True)
    times = [row[3] for row in rows]
    outside = (index for index, time in enumerate(times) if time != -1 and not earliest_ms <= time <= latest_ms)
    keyless = (index for index, row in enumerate(rows) if row[0] is None)
    consecutive = all((row[2] - base_offset) % 2**64 == index for index, row in enumerate(rows))
    return BatchFacts(max([-1, *times]), next(outside, -1), next(keyless, -1), consecutive)


def judge(data: bytes) -> str:
    """Judge one log: the name of its error, or `rows`."""
    one = Judge()
    with _strictly():
        word = one.judge(0, data)
        one.settle()
    return word


def run(seed: int, cases: int) -> Counter[str]:
    """Judge `cases` damaged logs; how often which outcome occurred. The first disagreement is raised."""
    outcomes: Counter[str] = Counter()
    hostile, bench = Cases(seed), Judge()
    with _strictly():
        for case in range(cases):
            data = hostile[case]
            try:
                outcomes[bench.judge(case, data)] += 1
                if case % _STEP == _STEP - 1 or case == cases - 1:
                    bench.settle()
                    bench.encode(random.Random(seed << 40 ^ case))
            except Disagreement as disagreement:
                message = str(disagreement).partition("\n  bytes")[0]
                raise Disagreement(message, disagreement.data, seed, case) from disagreement
            except Exception as error:
                raise Disagreement(f"{type(error).__name__}: {error}", data, seed, case) from error
    return outcomes


class _strictly:
    """Warnings of numpy, and all others, are errors."""

    def __enter__(self) -> None:
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.simplefilter("error")
        self._state = np.errstate(all="raise")
        self._state.__enter__()

    def __exit__(self, *exception: Any) -> None:
        self._state.__exit__(*exception)
        self._warnings.__exit__(*exception)
