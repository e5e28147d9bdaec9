"""`tidelog cat`: records as data, for eyes and for programs."""

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyarrow import csv, parquet

import tidelog
from tests.golden import corpus
from tests.log.logs import NOW
from tests.view.scans import some, write_log
from tidelog.cli.bounds import bound
from tidelog.cli.main import cli
from tidelog.errors import InvalidRequestError
from tidelog.log import LogConfig, UnifiedLog
from tidelog.records import Codec, Header, NewRecord
from tidelog.tables import rows as table_rows
from tidelog.view.internal_topics import INTERNAL_TOPICS

TIME = "2023-11-14T22:13:20"  # NOW


@pytest.fixture
def root(tmp_path: Path) -> Path:
    odd = [
        NewRecord(b"a", b"plain text", NOW, (Header("trace", b"\x01"), Header("none", None))),
        NewRecord(None, b"tab\tline\nback\\slash \xff \x1b[31m caf\xc3\xa9", NOW + 1),
        NewRecord(b"", None, -1),
    ]
    write_log(tmp_path / "data", [("put", Codec.NONE, odd), ("txn", 11, some(1)), ("end", 11, False)], "orders-0")
    write_log(tmp_path / "data", [("put", Codec.ZSTD, some(5, time=NOW + 60_000))], "orders-1")
    return tmp_path / "data"


def cat(root: Path, *arguments: str, topic: str = "orders") -> Result:
    return CliRunner().invoke(cli, ["cat", str(root), "--topic", topic, *arguments])


def lines(root: Path, *arguments: str) -> list[str]:
    done = cat(root, *arguments)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_text_is_one_line_per_record_with_everything_odd_escaped(root: Path) -> None:
    assert lines(root, "--partition", "0", "--limit", "3") == [
        f"0\t{TIME}.000Z\ta\tplain text",
        f"1\t{TIME}.001Z\t\\N\ttab\\tline\\nback\\\\slash \\xff \\x1b[31m café",
        "2\t-1\t\t\\N",
    ]
    assert lines(root, "--partition", "0", "--limit", "1", "--headers") == [
        f"0\t{TIME}.000Z\ta\tplain text\ttrace=\\x01\tnone=\\N"
    ]
    assert [line.split("\t")[0] for line in lines(root)] == ["0"] * 4 + ["1"] * 5


def test_bounds_keys_and_isolation_choose_records(root: Path) -> None:
    def offsets(*arguments: str) -> list[str]:
        return [line.split("\t")[1] for line in lines(root, *arguments)]

    assert offsets("--from", "3") == ["3", "3", "4"]
    assert offsets("--from", "1", "--to", "2") == ["1", "1"]
    assert offsets("--from", "2023-11-14T22:14:20.003Z") == ["3", "4"]
    assert offsets("--from", f"{NOW}ms", "--until", f"{NOW + 2}ms", "--max-lateness", "0s") == ["0", "1", "3"]
    assert offsets("--from", "-1h") == []
    assert offsets("--key", "a") == ["0"]
    assert offsets("--key", "base64:YQ==") == ["0"]
    assert offsets("--limit", "0") == []


def test_committed_leaves_out_what_was_aborted(root: Path) -> None:
    assert [line.split("\t")[1] for line in lines(root, "--committed")] == ["0", "1", "2", "0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("0", ("offset", 0)),
        ("20261101", ("offset", 20261101)),
        ("-2d", ("time", NOW - 2 * 86_400_000)),
        ("now", ("time", NOW)),
        ("5ms", ("time", 5)),
        ("2023-11-14", ("time", 1_699_920_000_000)),
        ("2023-11-14T22:13:20+01:00", ("time", NOW - 3_600_000)),
    ],
)
def test_a_bound_is_an_offset_or_a_time(text: str, meaning: tuple[str, int]) -> None:
    assert bound(text, NOW) == meaning


@pytest.mark.parametrize("text", ["", "-1", "1h", "1.5", "yesterday", "-1y", "٣"])
def test_a_bound_that_is_neither_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="neither an offset"):
        bound(text, NOW)


def test_json_lines_hold_every_byte(root: Path) -> None:
    rows = [json.loads(line) for line in lines(root, "-o", "jsonl", "--limit", "3")]
    assert rows[0] == {
        "key": "a", "value": "plain text", "topic": "orders", "partition": 0, "offset": 0, "timestamp": NOW,
        "timestampType": 0,
        "headers": [{"key": "trace", "value": "\x01"}, {"key": "none", "value": None}],
    }  # fmt: skip
    assert rows[1]["value"] == {"base64": "dGFiCWxpbmUKYmFja1xzbGFzaCD/IBtbMzFtIGNhZsOp"}
    assert (rows[2]["key"], rows[2]["value"], rows[2]["timestamp"]) == ("", None, -1)


def read(form: str, data: bytes) -> pa.Table:
    source = io.BytesIO(data)
    if form == "csv":
        options: Any = csv.ParseOptions(newlines_in_values=True)
        return csv.read_csv(source, parse_options=options)
    return parquet.read_table(source) if form == "parquet" else pa.ipc.open_stream(source).read_all()


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow"])
def test_tables_go_to_standard_output_or_into_a_file(root: Path, form: str, tmp_path: Path) -> None:
    table = read(form, cat(root, "-o", form).stdout_bytes)
    assert table.column("offset").to_pylist() == [0, 1, 2, 3, 0, 1, 2, 3, 4]
    target = tmp_path / f"records.{form}"
    assert cat(root, "-o", form, "--out", str(target)).exit_code == 0
    content = pa.ipc.open_file(target).read_all() if form == "arrow" else read(form, target.read_bytes())
    assert content.num_rows == 9
    refused = cat(root, "-o", form, "--out", str(target))
    assert refused.exit_code == 2
    assert "there already" in refused.stderr


def test_what_nobody_is_to_see_is_redacted(root: Path) -> None:
    first = lines(root, "--limit", "2", "--redact", "key,value", "--salt", "s")
    assert "plain text" not in str(first)
    assert "<10 bytes, " in first[0]
    assert first == lines(root, "--limit", "2", "--redact", "value", "--redact", "key", "--salt", "s")
    assert first != lines(root, "--limit", "2", "--redact", "key,value")
    [row] = [json.loads(line) for line in lines(root, "--limit", "1", "-o", "jsonl", "--redact", "headers")]
    assert row["headers"][0]["value"].startswith("<1 bytes, ")
    assert (row["headers"][0]["key"], row["headers"][1]["value"]) == ("trace", None)
    [row] = [json.loads(line) for line in lines(root, "--limit", "1", "-o", "jsonl", "--redact", "header-names")]
    assert row["headers"][0]["key"].startswith("<5 bytes, ")
    assert (row["headers"][0]["value"], row["headers"][1]["value"]) == ("\x01", None)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--from", "x"), "neither an offset"),
        (("--redact", "offset"), "cannot be redacted"),
        (("--partition", "9"), "partition 9"),
        (("--max-lateness", "1"), "no span of time"),
        (("--key", "base64:?"), "no base64"),
    ],
)
def test_a_wrong_argument_is_answered_in_one_line(root: Path, arguments: tuple[str, ...], reason: str) -> None:
    done = cat(root, *arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert reason in done.stderr


def test_a_topic_or_a_directory_that_is_not_there_is_answered_in_one_line(root: Path, tmp_path: Path) -> None:
    for done in (cat(root, topic="order"), cat(tmp_path / "nowhere")):
        assert done.exit_code == 2
        assert len(done.stderr.splitlines()) == 1


def test_bounds_that_leave_nothing_are_answered_with_what_there_is(root: Path) -> None:
    there = "the offsets are 0 to 4 in orders-0, 0 to 4 in orders-1"
    for arguments, told in {
        ("--from", "9"): f"no records: {there}",
        ("--partition", "1", "--to", "0"): "no records: the offsets are 0 to 4",
        ("--from", "2100-01-01"): f"no records: {there}; the newest time is 2023-11-14T22:14:20.004Z",
        ("--key", "nobody"): f"no records with this key: {there}",
        ("--key", "nobody", "-o", "arrow"): f"no records with this key: {there}",
        ("--skip-corrupt", "--from", "9"): f"no records: {there}",
    }.items():
        done = cat(root, *arguments)
        assert (done.exit_code, done.stderr) == (0, f"tidelog: {told}\n")
    assert cat(root, "--limit", "0").stderr == cat(root, "--from", "4").stderr == ""


def test_a_topic_without_records_is_said_to_be_empty(root: Path) -> None:
    (root / "new-0").mkdir()
    (root / "new-0" / f"{0:020}.log").touch()
    assert cat(root, topic="new").stderr == "tidelog: no records: new-0 is empty\n"


@pytest.mark.parametrize("option", ["--from", "--until"])
@pytest.mark.parametrize(
    ("number", "time"),
    [("1700000000500", "1700000000500ms or 2023-11-14T22:13:20.500Z"),
     ("1700000000", "1700000000000ms or 2023-11-14T22:13:20.000Z")],
)  # fmt: skip
def test_an_offset_that_looks_like_a_time_is_told_how_to_become_one(
    root: Path, option: str, number: str, time: str
) -> None:
    *_, told = cat(root, option, number).stderr.splitlines()
    assert told == f"tidelog: {option} {number} is taken for an offset, beyond the end; a time is written {time}"


def test_damage_is_an_error_or_left_out_and_told_of(root: Path) -> None:
    write_log(root, [("put", Codec.NONE, some(2))] * 3, "bad-0")
    log = root / "bad-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 3 + 70] ^= 1
    log.write_bytes(data)
    done = cat(root, "--partition", "0", topic="bad")
    assert (done.exit_code, len(done.stdout.splitlines()), len(done.stderr.splitlines())) == (3, 2, 1)
    advice = f"; --salvage leaves it out, `tidelog fsck {log.parent}` tells what is damaged and what can be saved\n"
    assert done.stderr.endswith(advice)
    assert done.stderr.count("fsck") == 1
    done = cat(root, "--partition", "0", "--skip-corrupt", topic="bad")
    assert (done.exit_code, len(done.stdout.splitlines())) == (1, 4)
    assert "left out" in done.stderr


def test_internal_topics_are_decoded() -> None:
    image = corpus.case("kafka-4.3/8-consumer-offsets")
    [home] = {path.parent.parent for path in image.rglob("__consumer_offsets-*/*.log")}
    done = cat(home, "--decode", "-o", "jsonl", topic="__consumer_offsets")
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"OffsetCommit", "GroupMetadata"} <= {row["key"]["type"] for row in rows}
    commit = next(row for row in rows if row["key"]["type"] == "OffsetCommit" and row["value"])
    assert commit["value"]["data"]["offset"] >= 0
    [line, *_] = cat(home, "--decode", "-o", "text", topic="__consumer_offsets").stdout.splitlines()
    assert json.loads(line.split("\t")[3])["type"]
    [hidden, *_] = cat(
        home, "--decode", "--redact", "key", "-o", "jsonl", topic="__consumer_offsets"
    ).stdout.splitlines()
    assert json.loads(hidden)["key"].startswith("<")
    refused = cat(home, "--decode", topic="nothing")
    assert refused.exit_code == 2


def test_only_topics_of_kafka_s_own_are_decoded(root: Path) -> None:
    refused = cat(root, "--decode")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "orders is no topic of Kafka's own; __cluster_metadata, __consumer_offsets" in refused.stderr


def test_a_record_of_64_mib_is_one_line(tmp_path: Path) -> None:
    huge = [NewRecord(b"k", b"x" * (64 << 20), NOW)]
    config = {"max_message_bytes": 1 << 30, "segment_bytes": 1 << 30}
    write_log(tmp_path, [("put", Codec.ZSTD, huge)], "huge-0", **config)
    done = cat(tmp_path, "--partition", "0", topic="huge")
    [line] = done.stdout.splitlines()
    assert len(line) == len(f"0\t{TIME}.000Z\tk\t") + (64 << 20)


@pytest.mark.parametrize("form", ["text", "parquet"])
def test_a_reader_that_leaves_ends_it_quietly(tmp_path: Path, form: str) -> None:
    write_log(tmp_path, [("put", Codec.NONE, [NewRecord(b"k", os.urandom(5000), NOW)] * 20) for _ in range(20)])
    command = [sys.executable, "-m", "tidelog", "cat", str(tmp_path), "--topic", "topic", "-o", form]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 0


# -- few rows ----------------------------------------------------------------------------------------------------------

WISHES = [
    (),
    ("--committed",),
    ("--from", "3", "--to", "40"),
    ("--from", "1ms"),
    ("--to", "2100-01-01", "--max-lateness", "0s"),
    ("--limit", "5"),
    ("--redact", "value,headers", "--salt", "s"),
    ("--committed", "--key", "k1"),
    ("--partition", "0", "--redact", "key", "--salt", "s"),
]


def many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on no number of rows is few."""
    monkeypatch.setattr(table_rows, "_FEW_ROWS", -1)
    monkeypatch.setattr(table_rows, "_FEW_BYTES", -1)


@pytest.mark.parametrize("case", corpus.case_names())
def test_few_rows_of_real_kafka_come_out_as_many_do(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = []
    partitions = list(corpus.partitions(case))
    for number, partition in enumerate(partitions[:: max(len(partitions) // 12, 1)]):
        topic = partition.path.name.rpartition("-")[0]
        for step, form in enumerate((("-o", "text"), ("-o", "text", "--headers"), ("-o", "jsonl"), ("-o", "csv"))):
            wishes = WISHES[(number + 2 * step) % len(WISHES)]
            decoded = ("--decode",) if topic in INTERNAL_TOPICS and step % 2 else ()
            commands.append((partition.path, topic, (*form, *wishes, *decoded)))
    few = [cat(path, *arguments, topic=topic) for path, topic, arguments in commands]
    many_rows(monkeypatch)
    for (path, topic, arguments), expected in zip(commands, few, strict=True):
        done = cat(path, *arguments, topic=topic)
        assert (done.exit_code, done.stderr) == (expected.exit_code, expected.stderr), f"{path} {arguments}"
        assert done.stdout_bytes == expected.stdout_bytes, f"{path} {arguments}"


@pytest.mark.parametrize("form", ["text", "jsonl", "csv"])
def test_odd_rows_come_out_the_same_however_many_there_are(
    root: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = [NewRecord(b'"quoted", it is', b"base64:", NOW), NewRecord(b"a,b\r\n", "é\u2028".encode(), -1)]
    write_log(root, [("put", Codec.NONE, odd), ("put", Codec.LZ4, some(3))], "orders-2")
    commands = [(), ("--key", "a"), ("--headers",), ("--from", f"{NOW}ms"), ("--limit", "7"),
                ("--salt", "s", "--redact", "headers"), ("--headers", "--salt", "s", "--redact", "header-names,key"),
                ("--headers", "--partition", "0")]  # fmt: skip
    few = [cat(root, "-o", form, *arguments) for arguments in commands]
    many_rows(monkeypatch)
    many = [cat(root, "-o", form, *arguments) for arguments in commands]
    assert [done.stdout_bytes for done in many] == [done.stdout_bytes for done in few]
    assert [done.exit_code for done in few] == [0] * len(commands)


@pytest.mark.parametrize(
    "arguments", [("--limit", "3"), ("-o", "jsonl"), ("-o", "csv"), ("--redact", "key", "--key", "a")]
)
def test_few_rows_need_neither_arrow_nor_kernels(root: Path, arguments: tuple[str, ...]) -> None:
    program = (
        "import sys; from tidelog.cli.main import cli\n"
        "try: cli(sys.argv[1:])\n"
        "finally: print(sorted({'numpy', 'numba', 'pyarrow', 'pandas'} & set(sys.modules)), file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, "cat", str(root), "--topic", "orders", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("form", ["text", "jsonl", "csv"])
def test_what_lies_before_damage_is_shown_before_the_error(tmp_path: Path, form: str, unbuffered: str) -> None:
    root = Path(shutil.copytree(corpus.case("kafka-4.3/4-transactions") / "image", tmp_path / "data"))
    log = root / "txn-main-0" / "00000000000000000051.log"
    log.chmod(0o644)
    data = bytearray(log.read_bytes())
    data[410 + 200] ^= 1
    log.write_bytes(data)
    words = [sys.executable, "-m", "tidelog", "cat", str(root), "--topic", "txn-main", "-o", form]
    done = subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, "PYTHONUNBUFFERED": unbuffered}, check=False
    )
    rows = [record.offset for record in tidelog.open(root)["txn-main", 0].read(to_offset=55)]
    assert done.returncode == 3
    assert "position 410" in done.stderr
    assert len(done.stdout.splitlines()) - (form == "csv") == len(rows)


# -- what is left out at the end of a log ------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of a partition: 5 batches of 2 records."""
    write_log(tmp_path / "ends", [("put", Codec.NONE, some(2))] * 5, "orders-0")
    return tmp_path / "ends" / "orders-0" / f"{0:020}.log"


@pytest.mark.parametrize(
    ("name", "magic"),
    [("x.parquet", b"PAR1"), ("x.CSV", b'"key"'), ("x.jsonl", b'{"key"'), ("x.feather", b"ARROW"), ("x.txt", b"0\t0")],
)
def test_the_name_of_the_file_tells_the_form(root: Path, tmp_path: Path, name: str, magic: bytes) -> None:
    target = tmp_path / name
    assert cat(root, "--out", str(target)).exit_code == 0
    assert target.read_bytes().startswith(magic)
    assert cat(root, "--out", str(target), "--force", "-o", "text").exit_code == 0
    assert target.read_bytes().startswith(b"0\t0")


FORMS = [("text",), ("jsonl",), ("parquet", "--out")]


def cat_all(log: Path, form: tuple[str, ...], *arguments: str) -> Result:
    target = [str(log.parents[2] / "x.parquet")] if "--out" in form else []
    return cat(log.parents[1], "-o", *form, *target, *(["--force"] if target else []), *arguments)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cut", [1, 40, 70])
def test_a_torn_end_is_reported_with_its_offset_and_bytes(log: Path, form: tuple[str, ...], cut: int) -> None:
    size = log.stat().st_size
    os.truncate(log, size - cut)
    done = cat_all(log, form)
    assert done.exit_code == 1
    place, left = size // 5 * 4, size // 5 - cut
    assert f"{log}, position {place}: the file ends inside a batch: these {left} bytes are left out" in done.stderr
    assert "offset 8 and what follows it" in done.stderr


@pytest.mark.parametrize("form", FORMS)
def test_a_damaged_last_batch_is_not_an_empty_log(tmp_path: Path, form: tuple[str, ...]) -> None:
    write_log(tmp_path / "ends", [("put", Codec.NONE, some(2))], "orders-0")
    log = tmp_path / "ends" / "orders-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[-2] ^= 1
    log.write_bytes(data)
    done = cat_all(log, form)
    assert done.exit_code == 1
    assert f"these {len(data)} bytes are left out, which held offset 0" in done.stderr
    assert "empty" not in done.stderr
    assert "no records: none can be read" in done.stderr
    done = cat_all(log, form, "--no-verify")
    assert (done.exit_code, done.stderr) == (0, "")
    done = cat_all(log, form, "--salvage")
    assert done.exit_code == 1


def test_without_checksums_what_is_complete_is_read_and_the_rest_reported(log: Path) -> None:
    size = log.stat().st_size // 5
    data = bytearray(log.read_bytes())
    data[3 * size + 70] ^= 1
    log.write_bytes(data[: 4 * size + 30])
    done = cat(log.parents[1])
    assert (done.exit_code, len(done.stdout.splitlines())) == (1, 6)
    assert f"position {3 * size}" in done.stderr
    assert f"these {size + 30} bytes" in done.stderr
    done = cat(log.parents[1], "--no-verify")
    assert (done.exit_code, len(done.stdout.splitlines())) == (1, 8)
    assert f"position {4 * size}: the file ends inside a batch: these 30 bytes" in done.stderr


def test_an_end_that_nobody_asked_for_is_not_reported(log: Path) -> None:
    os.truncate(log, log.stat().st_size - 1)
    for bounds in (("--to", "8"), ("--limit", "8")):
        done = cat(log.parents[1], *bounds)
        assert (done.exit_code, done.stderr, len(done.stdout.splitlines())) == (0, "", 8)
    assert cat(log.parents[1], "--to", "9").exit_code == 1


WAYS = [(), ("--salvage",), ("--no-verify",), ("-o", "jsonl", "--salvage")]


@pytest.mark.parametrize("way", WAYS)
def test_zeros_of_a_preallocated_segment_are_no_torn_end(log: Path, way: tuple[str, ...]) -> None:
    size = log.stat().st_size
    os.truncate(log, size + 5000)
    done = cat(log.parents[1], *way)
    assert (done.exit_code, len(done.stdout.splitlines())) == (0, 10)
    told = "5000 bytes of zeros follow offset 9; they were preallocated, or held offset 10 and what follows it"
    assert done.stderr == f"tidelog: {log}, position {size}: {told}\n"
    assert cat(log.parents[1], "--to", "9").stderr == ""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["replication-offset-checkpoint", "recovery-point-offset-checkpoint"])
def test_a_last_batch_that_became_zeros_is_reported(log: Path, way: tuple[str, ...], name: str) -> None:
    size = log.stat().st_size // 5
    log.write_bytes(log.read_bytes()[: 4 * size] + bytes(size))
    done = cat(log.parents[1], *way)
    assert (done.exit_code, len(done.stdout.splitlines())) == (0, 8)
    zeros = f"tidelog: {log}, position {4 * size}: {size} bytes of zeros follow offset 7; they "
    assert done.stderr == f"{zeros}were preallocated, or held offset 8 and what follows it\n"
    (log.parents[1] / name).write_text("0\n1\norders 0 10\n")
    done = cat(log.parents[1], *way)
    assert (done.exit_code, len(done.stdout.splitlines())) == (1, 8)
    first, second = done.stderr.splitlines()
    assert first == f"{zeros}held offset 8 and what follows it"
    assert second.endswith(" was 10 and the log ends at 8: records may be missing")


def test_a_log_of_zeros_is_reported(log: Path) -> None:
    log.write_bytes(bytes(100))
    told = "100 bytes of zeros and no batch; they were preallocated, or held offset 0 and what follows it"
    assert f"{log}, position 0: {told}\n" in cat(log.parents[1]).stderr


def cat_while_in_use(root: Path) -> Result:
    holder = subprocess.Popen(
        [sys.executable, "-c", "import sys; from tidelog.log.locks import lock_path; lock = lock_path(sys.argv[1]); "
         "print('held', flush=True); sys.stdin.read()", str(root / ".lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    done = cat(root)
    holder.communicate()
    return done


def test_zeros_that_a_running_broker_preallocates_are_not_reported(log: Path) -> None:
    os.truncate(log, log.stat().st_size + 5000)
    assert cat_while_in_use(log.parents[1]).stderr == ""


def test_while_a_broker_has_the_directory_open_an_incomplete_end_is_a_note(log: Path) -> None:
    os.truncate(log, log.stat().st_size - 1)
    (log.parents[1] / "replication-offset-checkpoint").write_text("0\n1\norders 0 10\n")
    done = cat_while_in_use(log.parents[1])
    assert (done.exit_code, len(done.stdout.splitlines())) == (0, 8)
    assert "a broker has the directory open and may be writing them" in done.stderr
    assert "records may be missing" not in done.stderr


def test_records_that_the_high_watermark_knows_and_the_log_lacks_are_reported(log: Path) -> None:
    (log.parents[1] / "replication-offset-checkpoint").write_text("0\n1\norders 0 10\n")
    os.truncate(log, log.stat().st_size // 5 * 4)
    done = cat(log.parents[1])
    assert done.exit_code == 1
    assert "orders-0: the high watermark was 10 and the log ends at 8: records may be missing" in done.stderr


# -- transactions ------------------------------------------------------------------------------------------------------


@pytest.fixture
def transactions(tmp_path: Path) -> Path:
    steps = [
        ("put", Codec.NONE, some(2)), ("txn", 1, some(3)), ("txn", 2, some(2)), ("end", 1, False), ("end", 2, True),
        ("txn", 1, some(1)), ("end", 1, True), ("txn", 3, some(4)),
    ]  # fmt: skip
    write_log(tmp_path / "txn", steps, "orders-0")
    return tmp_path / "txn"


@pytest.mark.parametrize("form", FORMS)
def test_uncommitted_records_are_printed_and_counted(transactions: Path, form: tuple[str, ...]) -> None:
    log = transactions / "orders-0" / f"{0:020}.log"
    done = cat_all(log, form)
    assert done.exit_code == 0
    told = "included: 3 records of transactions that were aborted and 4 records of transactions that are still open"
    assert done.stderr == f"tidelog: {told}; --committed leaves them out\n"
    for arguments in (("--committed",), ("--to", "2"), ("--limit", "2")):
        assert cat_all(log, form, *arguments).stderr == ""
    told = "included: 2 records of transactions that were aborted"
    assert told in cat_all(log, form, "--from", "3", "--to", "6").stderr


def test_a_full_disk_is_named_as_such(root: Path) -> None:
    done = cat(root, "--out", "/dev/full")
    assert (done.exit_code, done.stderr) == (
        3,
        "tidelog: /dev/full: the disk is full; free space, or write to another one\n",
    )
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "tidelog", "cat", str(root), "--topic", "orders"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (
        3,
        "tidelog: standard output: the disk is full; free space, or write to another one\n",
    )


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """Transactions of Kafka's, whose first segment has lost its last bytes: the aborted ones cannot be found."""
    root = Path(shutil.copytree(corpus.case("kafka-4.3/4-transactions") / "image", tmp_path / "torn"))
    log = root / "txn-main-0/00000000000000000000.log"
    os.truncate(log, log.stat().st_size - 20)
    return root


@pytest.mark.parametrize("way", [("--salvage",), ("--salvage", "--no-verify"), ("--salvage", "-o", "jsonl")])
def test_salvage_reads_on_where_transactions_cannot_be_known(torn: Path, way: tuple[str, ...]) -> None:
    done = cat(torn, *way, topic="txn-main")
    assert done.exit_code == 1, done.stderr
    assert len(done.stdout.splitlines()) == 121  # of 123
    assert done.stderr.count("which of its transactions were aborted cannot be known") == 1
    assert "offsets 5 to 6 with them" in done.stderr


def test_salvage_with_committed_leaves_out_what_cannot_be_known(torn: Path) -> None:
    sound = corpus.case("kafka-4.3/4-transactions") / "image"
    known = set(cat(sound, "--committed", topic="txn-main").stdout.splitlines())
    for way in (("--salvage", "--committed"), ("--no-verify", "--committed")):
        done = cat(torn, *way, topic="txn-main")
        assert done.exit_code == 1, done.stderr
        assert "offsets 5 to 6 with them" in done.stderr
        assert "whether they were committed cannot be known" in done.stderr
        assert set(done.stdout.splitlines()) <= known
        assert len(done.stdout.splitlines()) > len(known) - 10


@pytest.mark.parametrize("way", [(), ("--committed",), ("--committed", "--salvage")])
def test_without_checksums_a_torn_segment_is_read_around(tmp_path: Path, way: tuple[str, ...]) -> None:
    """Of segments that are not the last, too: what is skipped is reported with its offsets and bytes."""
    with UnifiedLog.open(tmp_path / "torn" / "orders-0", LogConfig(segment_bytes=600)) as log:
        for number in range(30):
            log.append([NewRecord(b"key", b"v" * 50, number)])
    second = sorted((tmp_path / "torn" / "orders-0").glob("*.log"))[1]
    os.truncate(second, second.stat().st_size - 40)
    for words in (["cat"], ["export", "--to", str(tmp_path / "out.csv")]):
        command = [words[0], str(tmp_path / "torn"), "--topic", "orders", "--no-verify", *way, *words[1:]]
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 1, done.stderr
        assert len([line for line in done.stderr.splitlines() if line.startswith("tidelog: ")]) == 1
        assert "the file ends inside a batch: these 81 bytes are left out, and offsets 7 to 7 with them" in done.stderr
        assert words[0] == "export" or len(done.stdout.splitlines()) == 29
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 30


def test_export_salvages_where_transactions_cannot_be_known(torn: Path, tmp_path: Path) -> None:
    words = ["export", str(torn), "--topic", "txn-main", "--salvage", "--to", str(tmp_path / "out.jsonl")]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 1, done.stderr
    assert done.stderr.count("which of its transactions were aborted cannot be known") == 1
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 121
