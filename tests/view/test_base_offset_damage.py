"""First offsets that lie, in every batch and with every value: no reader loses, moves or invents a record in silence.

The first offset of a batch of version 2 is not under its checksum. Here one of them is changed, in small logs of some
segments, and every reader must give the right records, or report what is wrong: raise it, or with `skip` note it. What
it gives besides must be true. A reader that leaves out damage gives all other records, apart from those of a batch
that may as well be the damaged one.

One kind of change nobody can see: one after which the log is in order. Its offsets still rise from batch to batch and
lie in their segment, because there was a gap (compaction makes such), or because the last batch of the log moved up. A
reader must read such a log as what it says (`is_in_order`).
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from tests.log.logs import ABORT, COMMIT, NOW, a_log, batch, end_txn, in_txn, lead, marker
from tests.view.scans import view
from tidelog.cli.main import cli
from tidelog.errors import CorruptionError
from tidelog.log.names import file_name
from tidelog.log.offsets import MAX_OFFSET
from tidelog.records import NewRecord
from tidelog.view.pieces import count_piece, read_piece

SECOND = 1000


# -- logs --------------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """A batch of a log."""

    segment: int
    position: int
    first: int
    last: int


class Row(NamedTuple):
    """A record."""

    offset: int
    value: str


class Truth(NamedTuple):
    """What a log holds."""

    places: list[Place]
    rows: list[Row]
    committed: list[Row]


def records_from(first: int, count: int) -> list[NewRecord]:
    """Records that tell their offset by their value, and by their time."""
    return [
        NewRecord(b"k%d" % (offset % 3), b"value %d" % offset, NOW + SECOND * offset)
        for offset in range(first, first + count)
    ]


def write_plain(root: Path, *, each: int, is_cut: bool = False) -> None:
    """Segments of some batches; with `is_cut` the first one was deleted."""
    with a_log(root, index_interval_bytes=100) as log:
        for number in range(11):
            if number in (4, 7):
                log.roll()
            lead(log, batch(records_from(log.log_end_offset, each)))
        log.update_high_watermark(log.log_end_offset)
    if is_cut:
        for path in (root / "topic-0").glob(f"{0:020}.*"):
            path.unlink()


def write_transactions(root: Path, *, with_files: bool) -> None:
    """Producers 1 to 3: committed, aborted, and across segments. Without files the log alone must tell."""
    with a_log(root, index_interval_bytes=100) as log:
        sequences = {1: 0, 2: 0, 3: 0}

        def put(producer: int, count: int = 1) -> None:
            records = records_from(log.log_end_offset, count)
            lead(log, in_txn(producer, sequences[producer], records))  # type: ignore[arg-type]
            sequences[producer] += count

        put(1)
        put(2, 2)
        end_txn(log, 1, ABORT)
        lead(log, batch(records_from(log.log_end_offset, 1)))
        put(1)
        end_txn(log, 2, COMMIT)
        log.roll()
        put(3)
        end_txn(log, 1, ABORT)
        put(2)
        end_txn(log, 3, COMMIT)
        log.roll()
        put(1, 2)
        end_txn(log, 2, ABORT)
        put(2)
        end_txn(log, 2, COMMIT)
        end_txn(log, 1, ABORT)
        lead(log, batch(records_from(log.log_end_offset, 1)))
        log.update_high_watermark(log.log_end_offset)
    if not with_files:
        for suffix in ("snapshot", "txnindex"):
            for path in (root / "topic-0").glob(f"*.{suffix}"):
                path.unlink()


def write_compacted(root: Path) -> None:
    """Batches with gaps between them, without indexes, and a transaction that was aborted."""
    directory = root / "topic-0"
    directory.mkdir(parents=True)
    for base, firsts in ((0, (0, 3, 4, 8)), (10, (12, 13, 17)), (20, (20, 24))):
        data = b"".join(
            bytes(batch(records_from(first, 2 if first == 13 else 1), base_offset=first)) for first in firsts
        )
        if base == 10:
            data += bytes(in_txn(7, 0, records_from(19, 1), base_offset=19))  # type: ignore[arg-type]
        if base == 20:
            data += bytes(marker(7, ABORT, offset=27))
        (directory / file_name(base, ".log")).write_bytes(data)


LOGS: dict[str, Callable[[Path], None]] = {
    "ones": lambda root: write_plain(root, each=1),
    "threes, cut": lambda root: write_plain(root, each=3, is_cut=True),
    "transactions": lambda root: write_transactions(root, with_files=True),
    "transactions, log only": lambda root: write_transactions(root, with_files=False),
    "compacted": write_compacted,
}


def truth_of(directory: Path) -> Truth:
    partition = view(directory)
    places = [
        Place(segment.base_offset, header.position, header.base_offset, header.last_offset)
        for segment in partition.segments
        for header in segment.batches()
    ]

    def rows(committed: bool) -> list[Row]:
        return [Row(record.offset, record.value.decode()) for record in partition.read(committed=committed)]  # type: ignore[union-attr]

    return Truth(places, rows(False), rows(True))


# -- readers -----------------------------------------------------------------------------------------------------------


class Given(NamedTuple):
    """What a reader gave, and what it reported."""

    rows: list[Row]
    told: str
    count: int | None = None  # of a reader that counts


class Reader(NamedTuple):
    """A way to read, and which rows it is asked for."""

    read: Callable[[Path], Given]
    is_wanted: Callable[[Row], bool] = lambda row: True
    committed: bool = False
    is_salvage: bool = False


def by_read(**options: Any) -> Callable[[Path], Given]:
    def read(root: Path) -> Given:
        rows: list[Row] = []
        try:
            for record in view(root / "topic-0").read(**options):
                assert record.value is not None
                rows.append(Row(record.offset, record.value.decode()))
        except CorruptionError as error:
            return Given(rows, str(error))
        return Given(rows, "")

    return read


def by_scan(**options: Any) -> Callable[[Path], Given]:
    def read(root: Path) -> Given:
        rows: list[Row] = []
        scan = view(root / "topic-0").scan(columns=["offset", "value"], **options)
        try:
            for found in scan:
                rows += rows_of(found)
        except CorruptionError as error:
            return Given(rows, str(error))
        return Given(rows, "\n".join(scan.notices))

    return read


def rows_of(found: Any) -> list[Row]:
    return [Row(offset, value.decode()) for offset, value in zip(*(c.to_pylist() for c in found.columns), strict=True)]


def by_count(**options: Any) -> Callable[[Path], Given]:
    def read(root: Path) -> Given:
        scan = view(root / "topic-0").scan(columns=["offset", "value"], **options)
        try:
            return Given([], "", scan.count())
        except CorruptionError as error:
            return Given([], str(error), 0)

    return read


def by_pieces(max_bytes: int, **options: Any) -> Callable[[Path], Given]:
    """As tasks of Spark read."""

    def read(root: Path) -> Given:
        rows: list[Row] = []
        notices: list[str] = []
        scan = view(root / "topic-0").scan(columns=["offset", "value"], **options)
        mode = options.get("on_corruption", "raise")
        try:
            pieces = scan.pieces(max_bytes)
            for piece in pieces:
                for found in read_piece(piece, ["offset", "value"], on_corruption=mode, notices=notices):
                    rows += rows_of(found)
        except CorruptionError as error:
            return Given(rows, str(error))
        return Given(rows, "\n".join([*scan.notices, *notices]))

    return read


def by_counted_pieces(max_bytes: int) -> Callable[[Path], Given]:
    def read(root: Path) -> Given:
        try:
            pieces = view(root / "topic-0").scan().pieces(max_bytes)
            return Given([], "", sum(map(count_piece, pieces)))
        except CorruptionError as error:
            return Given([], str(error), 0)

    return read


def by_cat(*options: str) -> Callable[[Path], Given]:
    def read(root: Path) -> Given:
        done = CliRunner().invoke(cli, ["cat", str(root), "--topic", "topic", "-o", "jsonl", *options])
        rows = [Row(row["offset"], row["value"]) for row in map(json.loads, done.stdout.splitlines())]
        return given_by(done, rows)

    return read


def by_export(*options: str) -> Callable[[Path], Given]:
    def read(root: Path) -> Given:
        target = root / "out.jsonl"
        words = ["export", str(root), "--topic", "topic", "--to", str(target), "--force", *options]
        done = CliRunner().invoke(cli, words)
        lines = target.read_text().splitlines() if target.exists() else []
        target.unlink(missing_ok=True)
        return given_by(done, [Row(row["offset"], row["value"]) for row in map(json.loads, lines)])

    return read


def given_by(done: Any, rows: list[Row]) -> Given:
    """What a command gave. Damage is reported by its exit code and on standard error, or not at all."""
    if done.exit_code == 0:
        return Given(rows, "")
    assert done.exit_code in (1, 3), done.output
    assert done.stderr
    return Given(rows, done.stderr)


def between(first: int, behind: int) -> Callable[[Row], bool]:
    return lambda row: first <= row.offset < behind


def value_number(row: Row) -> int:
    return int(row.value.partition(" ")[2])


SKIP = {"on_corruption": "skip"}

READERS: dict[str, Reader] = {
    "read": Reader(by_read()),
    "read committed": Reader(by_read(committed=True), committed=True),
    "read from 5": Reader(by_read(from_offset=5), between(5, 1 << 62)),
    "read 5 to 9": Reader(by_read(from_offset=5, to_offset=9), between(5, 9)),
    "read unverified": Reader(by_read(verify=False)),
    "scan": Reader(by_scan()),
    "scan committed": Reader(by_scan(committed=True), committed=True),
    "scan in threads": Reader(by_scan(threads=2)),
    "scan unverified": Reader(by_scan(verify=False)),
    "scan from 5": Reader(by_scan(from_offset=5), between(5, 1 << 62)),
    "scan 5 to 9": Reader(by_scan(from_offset=5, to_offset=9), between(5, 9)),
    "scan by time": Reader(
        by_scan(from_time=NOW + 5 * SECOND, to_time=NOW + 9 * SECOND), lambda row: 5 <= value_number(row) < 9
    ),
    "scan by time, in order": Reader(
        by_scan(from_time=NOW + 5 * SECOND, to_time=NOW + 9 * SECOND, max_lateness=0),
        lambda row: 5 <= value_number(row) < 9,
    ),
    "scan by key": Reader(by_scan(key="k1"), lambda row: value_number(row) % 3 == 1),
    "count": Reader(by_count()),
    "count committed": Reader(by_count(committed=True), committed=True),
    "count 5 to 9": Reader(by_count(from_offset=5, to_offset=9), between(5, 9)),
    "pieces": Reader(by_pieces(150)),
    "pieces committed": Reader(by_pieces(150, committed=True), committed=True),
    "counted pieces": Reader(by_counted_pieces(150)),
    "skip": Reader(by_scan(**SKIP), is_salvage=True),
    "skip committed": Reader(by_scan(committed=True, **SKIP), committed=True, is_salvage=True),
    "skip unverified": Reader(by_scan(verify=False, **SKIP), is_salvage=True),
    "skip 5 to 9": Reader(by_scan(from_offset=5, to_offset=9, **SKIP), between(5, 9), is_salvage=True),
    "skip by time": Reader(
        by_scan(from_time=NOW + 5 * SECOND, to_time=NOW + 9 * SECOND, **SKIP),
        lambda row: 5 <= value_number(row) < 9,
        is_salvage=True,
    ),
    "skip in pieces": Reader(by_pieces(150, **SKIP), is_salvage=True),
    "cat": Reader(by_cat()),
    "cat committed": Reader(by_cat("--committed"), committed=True),
    "cat by key": Reader(by_cat("--key", "k1"), lambda row: value_number(row) % 3 == 1),
    "cat salvage": Reader(by_cat("--salvage"), is_salvage=True),
    "cat salvage committed": Reader(by_cat("--salvage", "--committed"), committed=True, is_salvage=True),
    "cat unverified": Reader(by_cat("--no-verify"), is_salvage=True),
    "export": Reader(by_export(), committed=True),
    "export salvage": Reader(by_export("--salvage"), is_salvage=True),
    "read committed 0 to 5": Reader(by_read(committed=True, to_offset=5), between(0, 5), committed=True),
    "read committed 5 to 10": Reader(
        by_read(committed=True, from_offset=5, to_offset=10), between(5, 10), committed=True
    ),
    "scan committed 0 to 9": Reader(by_scan(committed=True, to_offset=9), between(0, 9), committed=True),
    "scan committed 5 to 10": Reader(
        by_scan(committed=True, from_offset=5, to_offset=10), between(5, 10), committed=True
    ),
    "scan committed by key": Reader(
        by_scan(committed=True, key="k0"), lambda row: value_number(row) % 3 == 0, committed=True
    ),
    "skip committed 0 to 9": Reader(
        by_scan(committed=True, to_offset=9, **SKIP), between(0, 9), committed=True, is_salvage=True
    ),
    "skip committed 5 to 10": Reader(
        by_scan(committed=True, from_offset=5, to_offset=10, **SKIP), between(5, 10), committed=True, is_salvage=True
    ),
    "cat committed 0 to 5": Reader(by_cat("--committed", "--to", "5"), between(0, 5), committed=True),
    "cat salvage committed 0 to 5": Reader(
        by_cat("--committed", "--salvage", "--to", "5"), between(0, 5), committed=True, is_salvage=True
    ),
}


# -- the campaign ------------------------------------------------------------------------------------------------------


def values_for(place: Place, bases: list[int], end: int) -> list[int]:
    """First offsets for a batch: next to its own, at the bounds of segments, at the end, and such as cannot be."""
    near = [place.first + step for step in (-2, -1, 1, 2, 4)]
    values = {-(2**63), -1, *near, *bases, end - 1, end, 1 << 40, 2**63 - 1}
    return sorted(values - {place.first})


def moved(places: list[Place], number: int, first: int) -> list[Place]:
    """The batches of a log with another first offset of one."""
    place = places[number]
    return [*places[:number], place._replace(first=first, last=first + place.last - place.first), *places[number + 1 :]]


def is_in_order(places: list[Place], bases: list[int]) -> bool:
    """Whether nothing in a log contradicts the offsets of its batches."""
    before = -1
    for place in places:
        behind = min((base for base in bases if base > place.segment), default=MAX_OFFSET)
        if not max(before + 1, place.segment) <= place.first <= place.last < behind:
            return False
        before = place.last
    return True


def can_be_damaged(places: list[Place], number: int, bases: list[int]) -> bool:
    """Whether a log is in order without one of its batches, and has room for it: so that one may be the damaged one."""
    place, others = places[number], [*places[:number], *places[number + 1 :]]
    if not is_in_order(others, bases):
        return False
    before = max([place.segment - 1, *(other.last for other in places[:number])])
    behind = min(
        [MAX_OFFSET, *(base for base in bases if base > place.segment), *(o.first for o in places[number + 1 :])]
    )
    return behind - before > place.last - place.first + 1


def wanted_of(reader: Reader, truth: Truth) -> list[Row]:
    return [row for row in (truth.committed if reader.committed else truth.rows) if reader.is_wanted(row)]


def judge(reader: Reader, given: Given, truth: Truth, doubtful: list[Place]) -> str | None:
    """What is wrong with what a reader gave of a damaged log."""
    wanted = wanted_of(reader, truth)
    if given.count is not None:
        return None if given.told or given.count == len(wanted) else f"counted {given.count} of {len(wanted)}"
    if [row for row in given.rows if row not in wanted] or given.rows != sorted(set(given.rows)):
        return f"gave {given.rows}"
    lost = [row for row in wanted if row not in given.rows]
    if lost and not given.told:
        return f"lost {lost} without a word"
    is_rest_due = reader.is_salvage and not reader.committed
    if is_rest_due and not all(any(place.first <= row.offset <= place.last for place in doubtful) for row in lost):
        return f"lost {lost} and said {given.told}"
    return None


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_no_reader_believes_a_first_offset_that_cannot_be(tmp_path: Path, name: str, reader: Reader) -> None:
    LOGS[name](tmp_path)
    directory = tmp_path / "topic-0"
    truth, bases = truth_of(directory), sorted(int(path.stem) for path in directory.glob("*.log"))
    sound = reader.read(tmp_path)
    assert not sound.told
    assert (sound.rows, sound.count) in ((wanted := wanted_of(reader, truth), None), ([], len(wanted)))
    faults = []
    for number, place in enumerate(truth.places):
        path = directory / file_name(place.segment, ".log")
        whole = path.read_bytes()
        for value in values_for(place, bases, truth.places[-1].last + 1):
            places = moved(truth.places, number, value)
            if is_in_order(places, bases):
                continue
            raw = value.to_bytes(8, "big", signed=True)
            path.write_bytes(whole[: place.position] + raw + whole[place.position + 8 :])
            given = reader.read(tmp_path)
            if not given.told and (left_out := view(directory).left_out) is not None:
                given = given._replace(told=str(left_out))  # which commands print, and a view says if it is asked
            doubtful = [truth.places[n] for n in range(len(places)) if can_be_damaged(places, n, bases)]
            if (fault := judge(reader, given, truth, doubtful)) is not None:
                faults.append(f"batch {place} with first offset {value}: {fault}")
        path.write_bytes(whole)
    assert not faults


def test_the_batch_with_the_damaged_offset_is_named_and_those_before_it_are_given(tmp_path: Path) -> None:
    """One that begins where the batch before it ends is right."""
    directory = tmp_path / "topic-0"
    directory.mkdir()
    batches = [bytearray(batch(records_from(3 * number, 3), base_offset=3 * number)) for number in range(6)]
    batches[3][:8] = (8).to_bytes(8, "big")
    (directory / file_name(0, ".log")).write_bytes(b"".join(batches))
    given: list[int] = []
    with pytest.raises(CorruptionError, match=f"position {sum(map(len, batches[:3]))}: "):
        given.extend(record.offset for record in view(directory).read())
    assert given == list(range(9))
