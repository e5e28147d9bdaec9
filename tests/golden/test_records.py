"""What real Kafka wrote, read by `tidelog.records`: every field is what Kafka's own tool and consumers say it is."""

import base64
import hashlib
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.golden import corpus
from tests.golden.corpus import Dump, OldDump, Partition
from tests.golden.dump_text import DumpText, Options, dump_text, dump_text_1_0, printed_control_texts
from tidelog.errors import CorruptRecordError
from tidelog.records import (
    AbortedTxn,
    Batch,
    Codec,
    Record,
    TimestampType,
    committed_batches,
    read_batches,
    read_memory_batches,
)

# -- Kafka's dump tool ---------------------------------------------------------------------------------------------

# Files of each case whose whole dump must be ours, so that none drops out unseen; `.checkpoint` files are logs too.
FILES_OF_4_3 = {
    "kafka-4.3/1-codecs": 16,
    "kafka-4.3/2-records": 12,
    "kafka-4.3/3-rolls": 35,
    "kafka-4.3/4-transactions": 30,
    "kafka-4.3/5-compaction": 523,
    "kafka-4.3/6-recovery": 717,
    "kafka-4.3/7-lookups": 20,
    "kafka-4.3/8-consumer-offsets": 4,
    "kafka-4.3/9-metadata": 10,
}
# Of those, the files on which the tool itself ended with an exception. What it printed before that is compared.
BROKEN_FILES = {"kafka-4.3/6-recovery": 17}
U_LEN_14 = "unclean/before/u-len-14-0"


def modes_for_logs(partition: Partition, file: str) -> Iterator[str]:
    """The modes in which the tool was run, without those for indexes and for the schemas of internal topics."""
    for mode in corpus.dump_modes(partition, file):
        if not is_decoded([mode]) and "index" not in mode:
            yield mode


def assert_same_text(where: str, ours: DumpText, kafkas: Dump | OldDump) -> None:
    if kafkas.exit == 0:
        form = kafkas.like(ours.text) if isinstance(kafkas, Dump) else ours.text
        assert (where, form, ours.error) == (where, kafkas.stdout, None)
    else:  # the tool may stop inside a line, where it looks up what it prints next
        assert isinstance(kafkas.stdout, str)
        whole_lines = kafkas.stdout[: kafkas.stdout.rfind("\n") + 1]
        assert (where, ours.text) == (where, whole_lines)
        assert ours.error is not None, where


@behaviour("REC-095")
@pytest.mark.parametrize("case", FILES_OF_4_3)
def test_every_field_is_what_the_dump_tool_of_4_3_prints(case: str) -> None:
    compared = broken = 0
    for partition in corpus.partitions(case):
        for log in [*partition.logs, *sorted(partition.path.glob("*.checkpoint"))]:
            exits = set()
            for mode in modes_for_logs(partition, log.name):
                kafkas = corpus.dump(partition, log.name, mode)
                ours = dump_text(log, Options.parse(mode.split()), printed_control_texts(kafkas.visible))
                exits.add(kafkas.exit)
                if partition.name != U_LEN_14 or kafkas.exit == 0:  # the next test but one
                    assert_same_text(f"{partition}/{log.name} {mode}", ours, kafkas)
            compared += 1
            broken += 1 in exits
    assert (compared, broken) == (FILES_OF_4_3[case], BROKEN_FILES.get(case, 0))


def test_no_case_of_4_3_with_logs_is_left_out() -> None:
    with_logs = {name for name in corpus.case_names("kafka-4.3") if corpus.log_files(name)}
    assert with_logs == set(FILES_OF_4_3)


def test_a_length_too_short_for_a_header_is_corrupt_where_kafkas_tool_reads_on_into_the_next_batch() -> None:
    """The one place where we stop earlier: a length of 14 in a batch of version 2, whose header alone takes 61."""
    log = Partition("kafka-4.3/6-recovery", U_LEN_14).path / "00000000000000000037.log"
    batches = read_batches(log.read_bytes())
    assert [next(batches).base_offset for _ in range(2)] == [37, 38]
    with pytest.raises(CorruptRecordError, match="26 bytes"):
        next(batches)


RUNS_OF_4_2 = {
    ("legacy", ""): 118,
    ("dump-formats", "written-by-1.0.0/"): 32,
    ("dump-formats", "written-by-2.8.2/"): 16,
}


@pytest.mark.parametrize(("case", "below"), RUNS_OF_4_2)
def test_every_field_is_what_the_dump_tool_of_4_2_prints(case: str, below: str) -> None:
    """Old formats with the checksums of inner messages, and damaged files: the same text, or an error of ours."""
    compared, contents = 0, set()
    for run in corpus.old_dumps(case, "4.2.0", below):
        _, file, *words = run.args
        if not file.endswith(".log") or is_decoded(words) and "--skip-record-metadata" in words:
            continue
        log = corpus.case(case) / below / run.dir / file
        if is_decoded(words):
            run, words = run._replace(stdout=without_data(run.stdout)), ["--deep-iteration"]
        ours = dump_text(log, Options.parse(words, is_4_3=False))
        assert_same_text(f"{case}/{below}{run.dir}/{file} {words}", ours, run)
        contents.add(log.read_bytes())
        compared += 1
    assert compared == RUNS_OF_4_2[case, below]
    logs = (corpus.case(case) / below).rglob("*.log")
    assert {log.read_bytes() for log in logs} == contents, "a file that no run was compared with"


def is_decoded(words: Iterable[str]) -> bool:
    return any("decoder" in word for word in words)


def without_data(stdout: str) -> str:
    """Record lines without keys and payloads, which the tool had put into the words of a schema."""
    return re.sub(r"(?m)(^\| .* headerKeys: \[[^\]]*\]) (?:key|payload): .*$", r"\1", stdout)


@pytest.mark.parametrize("client", ["client-0.10.2.2", "client-1.0.0"])
def test_the_walk_through_is_what_the_dump_tool_of_1_0_prints(client: str) -> None:
    compared = 0
    for partition in corpus.partitions("seed-walkthrough"):
        if not partition.name.startswith(client):
            continue
        for log in partition.logs:
            for mode in ("plain", "print-data-log", "print-data-log.deep-iteration"):
                stdout = (partition.path.parent / "dump-1.0.0" / f"{log.name}.{mode}.stdout").read_text("utf-8")
                ours = dump_text_1_0(log, deep="deep" in mode)
                assert (str(partition), log.name, ours.text, ours.error) == (str(partition), log.name, stdout, None)
                compared += 1
    assert compared == 33


# -- consumers -----------------------------------------------------------------------------------------------------


def delivered(batches: Iterable[Batch], start_offset: int = 0) -> list[Record]:
    """What a consumer hands on: no control records, nothing below its position, which only moves forward."""
    position, records = start_offset, []
    for batch in batches:
        for record in () if batch.is_control else batch.records():
            if record.offset >= position:
                records.append(record)
                position = record.offset + 1
    return records


def like_expected(record: Record, row: list) -> list:
    """The record in the form of the corpus: [offset, timestamp, key, value, headers?], long bytes as a digest."""
    wants_digest = [isinstance(field, dict) for field in row[2:4]]
    ours = [record.offset, record.timestamp_ms, *map(encode, (record.key, record.value), wants_digest)]
    if record.headers:
        ours.append([[header.key, encode(header.value)] for header in record.headers])
    return ours


def encode(data: bytes | None, as_digest: bool = False) -> str | dict | None:
    if data is None:
        return None
    if as_digest:
        return {"len": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return base64.b64encode(data).decode()


def assert_same_records(records: list[Record], rows: list[list]) -> int:
    assert len(records) == len(rows)
    assert [like_expected(record, row) for record, row in zip(records, rows, strict=True)] == rows
    return len(rows)


@pytest.mark.parametrize(
    ("case", "topics", "records"),
    [("kafka-4.3/1-codecs", 16, 1993), ("kafka-4.3/2-records", 10, 1645), ("kafka-4.3/3-rolls", 8, 677)],
)
def test_records_are_those_a_consumer_was_given(case: str, topics: int, records: int) -> None:
    answers = sorted((corpus.case(case) / "expected").glob("*.json"))
    assert len(answers) == topics
    assert records == sum(
        assert_same_records(
            delivered(read_batches(Partition(case, f"image/{answer.stem}-0").read())),
            corpus.expected(case, answer.stem),
        )
        for answer in answers
    )


@pytest.mark.parametrize("side", [f"{round_}-{side}" for round_ in (1, 2, 3) for side in ("before", "after")])
def test_compacted_topics_hold_the_records_a_consumer_was_given(side: str) -> None:
    topics = corpus.expected("kafka-4.3/5-compaction", side)
    assert len(topics) == 18
    for topic, answer in topics.items():
        log = Partition("kafka-4.3/5-compaction", f"{side}/{topic}-0").read()
        assert_same_records(delivered(read_batches(log)), answer["records"])


def test_records_in_disorder_of_time_are_those_a_consumer_was_given() -> None:
    for topic, answer in corpus.facts("kafka-4.3/7-lookups", "lookups.json").items():
        log = Partition("kafka-4.3/7-lookups", f"image/{topic}-0").read()
        assert_same_records(delivered(read_batches(log), answer["logStartOffset"]), answer["records"])


# -- transactions --------------------------------------------------------------------------------------------------

TRANSACTIONS = "kafka-4.3/4-transactions"
TRANSACTIONAL = ("idem-raw-0", "txn-gzip-0", "txn-main-0", "txn-multi-0", "txn-multi-1")

# i16 version, then i64 producer id, first offset, last offset, last stable offset
TXN_INDEX_ENTRY = struct.Struct(">hqqqq")


def aborted_in(directory: Path) -> list[AbortedTxn]:
    """The aborted transactions that the transaction indexes of a partition list."""
    return [
        AbortedTxn(producer_id, first_offset)
        for index in sorted(directory.glob("*.txnindex"))
        for _, producer_id, first_offset, _, _ in TXN_INDEX_ENTRY.iter_unpack(index.read_bytes())
    ]


@pytest.mark.parametrize("image", ["image", "image-after-restart"])
@pytest.mark.parametrize("name", TRANSACTIONAL)
def test_each_isolation_level_delivers_what_a_consumer_was_given(name: str, image: str) -> None:
    partition, answer = Partition(TRANSACTIONS, f"{image}/{name}"), corpus.expected(TRANSACTIONS, name)
    batches = list(read_batches(partition.read()))
    assert_same_records(delivered(batches), answer["read_uncommitted"]["records"])
    stable = [batch for batch in batches if batch.last_offset < answer["read_committed"]["end"]]
    committed = committed_batches(stable, aborted_in(partition.path))
    assert_same_records(delivered(committed), answer["read_committed"]["records"])


@pytest.mark.parametrize("name", TRANSACTIONAL)
def test_a_read_committed_fetch_delivers_the_committed_records_of_its_bytes(name: str) -> None:
    """Each recorded fetch answer is found in the log, byte for byte, and sieved with the aborted list it came with."""
    answer = corpus.expected(TRANSACTIONS, name)
    log = Partition(TRANSACTIONS, f"image/{name}").read()
    positions = dict(positions_by_offset(log))
    for fetch in answer["fetch_read_committed"]:
        if not fetch["bytes"]:
            continue
        start = positions[fetch["batches"][0][0]]
        fetched = log[start : start + fetch["bytes"]]
        assert hashlib.sha256(fetched).hexdigest() == fetch["sha256"]
        whole = [[base, last, size] for base, last, size, is_whole in fetch["batches"] if is_whole]
        batches = list(read_memory_batches(fetched))
        assert [[batch.base_offset, batch.last_offset, batch.size_in_bytes] for batch in batches] == whole
        aborted = [AbortedTxn(*transaction) for transaction in fetch["aborted"] or ()]
        next_offset = batches[-1].next_offset
        rows = [row for row in answer["read_committed"]["records"] if fetch["offset"] <= row[0] < next_offset]
        assert_same_records(delivered(committed_batches(batches, aborted), fetch["offset"]), rows)


def positions_by_offset(log: bytes) -> Iterator[tuple[int, int]]:
    position = 0
    for batch in read_batches(log):
        yield batch.base_offset, position
        position += batch.size_in_bytes


# -- whole files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [name for name in corpus.case_names() if name != "kafka-4.3/10-layout"])
def test_undamaged_files_are_valid_batches_from_the_first_byte_to_the_last(case: str) -> None:
    for partition in corpus.undamaged_partitions(case):
        for log in partition.logs:
            data = log.read_bytes()
            batches = list(read_batches(data))
            assert all(batch.is_valid for batch in batches), log
            assert sum(batch.size_in_bytes for batch in batches) == len(data), log


@behaviour("REC-098")
@pytest.mark.parametrize("case", [name for name in corpus.case_names() if name != "kafka-4.3/10-layout"])
def test_a_batch_of_a_file_reads_the_same_from_memory(case: str) -> None:
    for partition in corpus.undamaged_partitions(case):
        for log in partition.logs:
            data = log.read_bytes()
            from_file, from_memory = read_batches(data), read_memory_batches(bytearray(data))
            for one, other in zip(from_file, from_memory, strict=True):
                assert (type(one), one.buffer) == (type(other), other.buffer)
                assert list(one.records()) == list(other.records())


# -- the same sends to many releases -------------------------------------------------------------------------------

START_MS = 1_700_000_000_000
BURSTS = [(1, 2, 3), (10, 30, 20), (40, 60, 50), (70, 70, 70), (80, 80, 80), (5, 6, 7), (95, 90), (99,)]
GZIP_BURSTS = {2, 4}
SENT = [
    (b"k%d" % burst, b"burst %d record %d" % (burst, index), START_MS + time)
    for burst, times in enumerate(BURSTS)
    for index, time in enumerate(times)
]
CODECS = [Codec.GZIP if burst in GZIP_BURSTS else Codec.NONE for burst, times in enumerate(BURSTS) for _ in times]


@pytest.mark.parametrize("partition", corpus.partitions("index-content"), ids=lambda partition: partition.name)
def test_every_release_stored_what_was_sent(partition: Partition) -> None:
    by_broker = partition.name.endswith("probe-lat-0")
    batches = list(read_batches(partition.read()))
    records = [record for batch in batches for record in batch.records()]
    assert {batch.timestamp_type for batch in batches} == {TimestampType(by_broker)}
    assert {batch.magic for batch in batches} == {1 if "0.10.2.2" in partition.name else 2}
    assert [batch.codec for batch in batches for _ in batch.records()] == CODECS
    assert [record.offset for record in records] == list(range(21))
    assert [(record.key, record.value) for record in records] == [(key, value) for key, value, _ in SENT]
    append_times = [batch.max_timestamp_ms for batch in batches for _ in batch.records()]
    assert [record.timestamp_ms for record in records] == (
        append_times if by_broker else [timestamp_ms for _, _, timestamp_ms in SENT]
    )
