"""Scans give what the records path reads, for every log, every bound and every way to cut."""

import inspect
import pickle
import re
from datetime import UTC, date, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelog
from tests.golden import corpus
from tests.golden.test_records import TRANSACTIONAL, like_expected
from tests.log.logs import NOW
from tests.property.strategies import codecs, legacy_codecs
from tests.view.scans import COLUMNS, rows_read, rows_scanned, scan_of, some, view, write_log
from tidelog.errors import InvalidRequestError, TidelogError
from tidelog.records import Codec, Header, NewRecord, Record
from tidelog.view.pieces import read_piece
from tidelog.view.request import Request, time_ms
from tidelog.view.scan import Scan, ScanOptions

# -- against the records path ------------------------------------------------------------------------------------------

_keys = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"\xff\x00"]))
_times = st.integers(NOW - 20, NOW + 20)
_records = st.lists(
    st.builds(NewRecord, _keys, st.binary(max_size=40), _times, st.just((Header("h", b"x"),)) | st.just(())),
    min_size=1,
    max_size=4,
)
_plain_records = st.lists(
    st.builds(NewRecord, _keys, st.binary(max_size=40), _times, st.just(())), min_size=1, max_size=4
)
_old = st.tuples(st.just("old"), st.sampled_from([0, 1]), legacy_codecs, _plain_records)
_steps = st.one_of(
    st.tuples(st.just("put"), codecs, _records),
    st.tuples(st.just("txn"), st.sampled_from([11, 12]), _records),
    st.tuples(st.just("end"), st.sampled_from([11, 12]), st.booleans()),
    st.tuples(st.just("roll")),
)
_maybe = st.none() | st.integers(0, 60)


@settings(max_examples=60, deadline=None)
@given(
    old=st.lists(_old, max_size=3),
    steps=st.lists(_steps, max_size=25),
    first=_maybe,
    limit=_maybe,
    times=st.tuples(st.none() | _times, st.none() | _times),
    key=_keys,
    committed=st.booleans(),
    max_bytes=st.sampled_from([1, 150, 1000]),
    whose_time=st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
)
def test_a_scan_gives_the_records_that_are_read_one_by_one(
    old: list[Any],
    steps: list[Any],
    first: int | None,
    limit: int | None,
    times: tuple[int | None, int | None],
    key: bytes | None,
    committed: bool,
    max_bytes: int,
    whose_time: str,
) -> None:
    with TemporaryDirectory() as directory:
        log = write_log(Path(directory), [*old, *steps], message_timestamp_type=whose_time)
        options = {
            "from_offset": first, "to_offset": limit, "from_time": times[0], "to_time": times[1], "key": key,
            "committed": committed,
        }  # fmt: skip

        def is_wanted(record: Record) -> bool:
            return (
                (times[0] is None or record.timestamp_ms >= times[0])
                and (times[1] is None or record.timestamp_ms < times[1])
                and (key is None or record.key == key)
            )

        expected = rows_read(view(log), is_wanted, from_offset=first, to_offset=limit, committed=committed)
        scan = scan_of(log, **options)
        assert rows_scanned(scan) == expected
        assert scan.count() == len(expected)
        pieces = pickle.loads(pickle.dumps(scan.pieces(max_bytes)))
        assert rows_scanned(batch for piece in pieces for batch in read_piece(piece, COLUMNS)) == expected
        assert rows_scanned(scan_of(log, threads=3, **options)) == expected


@pytest.mark.parametrize("case", corpus.case_names())
def test_every_log_of_real_kafka_is_scanned_as_it_is_read(case: str) -> None:
    for partition in corpus.partitions(case):
        for committed in (False, True):
            try:
                expected: Any = rows_read(view(partition.path), committed=committed)
            except TidelogError as error:
                expected = type(error)
            try:
                scanned: Any = rows_scanned(scan_of(partition.path, committed=committed))
            except TidelogError as error:
                scanned = type(error)
            assert scanned == expected, f"{partition} {committed}"


@pytest.mark.parametrize("case", ["kafka-4.3/1-codecs", "kafka-4.3/2-records", "kafka-4.3/3-rolls"])
def test_rows_are_the_records_that_a_consumer_was_given(case: str) -> None:
    answers = sorted((corpus.case(case) / "expected").glob("*.json"))
    assert answers
    for answer in answers:
        rows = rows_scanned(scan_of(corpus.case(case) / f"image/{answer.stem}-0"))
        assert_given(rows, corpus.expected(case, answer.stem))


@pytest.mark.parametrize("topic", TRANSACTIONAL)
@pytest.mark.parametrize(("isolation", "committed"), [("read_committed", True), ("read_uncommitted", False)])
def test_committed_rows_are_those_that_a_read_committed_consumer_was_given(
    topic: str, isolation: str, committed: bool
) -> None:
    case = "kafka-4.3/4-transactions"
    rows = rows_scanned(scan_of(corpus.case(case) / "image" / topic, committed=committed))
    answer = corpus.expected(case, topic)
    assert_given(rows, answer[isolation]["records"])


def assert_given(rows: list[tuple[Any, ...]], expected: list[list[Any]]) -> None:
    records: list[Record] = []
    for key, value, offset, time, headers, *_ in rows:
        # A consumer's position only moves forward: of one hand-made batch, whose offsets go back, it delivers less.
        if not records or offset > records[-1].offset:
            records.append(Record(offset, time, key, value, tuple(Header(**header) for header in headers or ())))
    assert len(records) == len(expected)
    assert [like_expected(record, row) for record, row in zip(records, expected, strict=True)] == expected


# -- columns -----------------------------------------------------------------------------------------------------------


def test_without_a_choice_the_columns_are_those_of_sparks_kafka_source(tmp_path: Path) -> None:
    log = write_log(tmp_path, [("put", Codec.NONE, some(2))], "orders-3")
    scan = Scan.of(lambda: [view(log)])
    assert scan.schema.names == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    table = scan.to_table()
    assert table.schema == scan.schema
    assert table.column("topic").to_pylist() == ["orders", "orders"]
    assert table.column("partition").to_pylist() == [3, 3]


def test_the_segment_is_a_column(tmp_path: Path) -> None:
    log = write_log(tmp_path, [("put", Codec.NONE, some(2)), ("roll",), ("put", Codec.LZ4, some(1))])
    table = Scan.of(lambda: [view(log)], columns=["codec", "segment", "offset"]).to_table()
    assert table.to_pydict() == {"codec": ["none", "none", "lz4"], "segment": [0, 0, 2], "offset": [0, 1, 2]}


def test_times_come_in_microseconds_if_asked_for(tmp_path: Path) -> None:
    log = write_log(tmp_path, [("put", Codec.NONE, some(3))])
    scan = Scan.of(lambda: [view(log)], columns=["timestamp"], timestamp_unit="us", from_time=NOW + 1)
    assert scan.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    assert scan.to_table().column(0).cast(pa.int64()).to_pylist() == [(NOW + 1) * 1000, (NOW + 2) * 1000]


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_offsets_may_be_given_by_partition(tmp_path: Path) -> None:
    logs = [write_log(tmp_path, [("put", Codec.NONE, some(5))], f"topic-{number}") for number in range(2)]

    def offsets(**options: Any) -> list[tuple[int, int]]:
        table = Scan.of(lambda: [view(log) for log in logs], columns=["partition", "offset"], **options).to_table()
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    assert offsets(from_offset={0: 3, 1: 4}) == [(0, 3), (0, 4), (1, 4)]
    assert offsets(to_offset={("topic", 1): 1}, partitions=[1]) == [(1, 0)]
    assert offsets(partitions=1, from_offset=3) == [(1, 3), (1, 4)]


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        (5, 5),
        ("2026-11-01", 1_793_491_200_000),
        ("2026-11-01T01:00:00+01:00", 1_793_491_200_000),
        (datetime(2026, 11, 1), 1_793_491_200_000),
        (datetime(2026, 11, 1, tzinfo=UTC) + timedelta(microseconds=1), 1_793_491_200_001),
        (date(2026, 11, 1), 1_793_491_200_000),
    ],
)
def test_a_time_is_a_number_a_date_or_its_text(written: Any, ms: int) -> None:
    assert time_ms(written) == ms


def test_late_records_are_found_unless_there_are_known_to_be_none(tmp_path: Path) -> None:
    late = [("put", Codec.NONE, some(1, time=time)) for time in (NOW, NOW + 100, NOW + 200, NOW + 50, NOW + 300)]
    log = write_log(tmp_path, late)

    def times(**options: Any) -> list[int]:
        return [row[3] - NOW for row in rows_scanned(scan_of(log, from_time=NOW, to_time=NOW + 101, **options))]

    assert times() == [0, 100, 50]
    assert times(max_lateness=150) == [0, 100, 50]
    assert times(max_lateness=timedelta(0)) == [0, 100]


def test_only_the_partition_of_a_key_is_read_if_the_default_partitioner_chose_it(tmp_path: Path) -> None:
    logs = [write_log(tmp_path, [("put", Codec.NONE, some(1, key=b"a"))], f"topic-{number}") for number in range(12)]
    scan = Scan.of(lambda: [view(log) for log in logs], columns=["partition"], key="a", key_partitions=12)
    assert scan.to_table().column(0).to_pylist() == [4]


def documented_columns() -> list[str]:
    """The columns that docs/scan.md has in its table, in that order."""
    page = (Path(__file__).parents[2] / "docs" / "scan.md").read_text()
    _, _, table = page.partition("| column | type |")
    rows = takewhile(lambda line: line.startswith("|"), table.splitlines()[1:])
    return [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"columns": ["keys"]}, "no column 'keys', do you mean 'key'"),
        ({"columns": ["x"]}, f"no column 'x'; there are {', '.join(documented_columns())}$"),
        ({"columns": ["isControl"]}, "no column 'isControl'"),
        ({"columns": "key"}, "for one column write"),
        ({"columns": []}, "count"),
        ({"columns": ["segment", "segment"]}, "twice"),
        ({"from_offset": -1}, "from 0 on"),
        ({"from_time": "yesterday"}, "2026-11-01"),
        ({"from_time": True}, "no time"),
        ({"end_bound": "end"}, "highWatermark"),
        ({"on_corruption": "ignore"}, "skip"),
        ({"key_partitions": 3}, "without a key"),
        ({"threads": 0}, "at least one"),
        ({"partitions": ["0"]}, "numbers"),
        ({"max_lateness": -1}, "late"),
    ],
)
def test_what_cannot_be_scanned_is_said_at_once(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        Scan.of(list, **options)


def test_a_partition_that_is_not_there_is_named(tmp_path: Path) -> None:
    log = write_log(tmp_path, [("put", Codec.NONE, some(1))])
    with pytest.raises(InvalidRequestError, match="no partition 7; there are 0"):
        scan_of(log, partitions=7).to_table()


def test_an_option_that_there_is_not_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    logs = tidelog.open(tmp_path)
    with pytest.raises(TypeError, match="a scan has no option 'partition'; do you mean 'partitions'"):
        logs.scan("orders", partition=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="a scan has no option 'x'; known are columns, verify"):
        logs["orders", 0].scan(x=1)  # type: ignore[call-arg]


def test_the_options_of_a_scan_are_those_of_what_it_is_made_by() -> None:
    named = [
        parameter.name
        for made_by in (Scan.of, Request.of)
        for parameter in inspect.signature(made_by).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    assert list(ScanOptions.__annotations__) == named
