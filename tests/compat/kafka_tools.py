"""Apache Kafka as a library of judges: its dump tool, and its own record classes, run in a JVM.

    dump_log(paths, "--print-data-log")   what org.apache.kafka.tools.DumpLogSegments prints
    parse_dump(result.stdout)             the same as values
    judge_read(paths)                     the records as Kafka's classes read them, every check on
    judge_write(batches, path)            a file as Kafka's MemoryRecordsBuilder writes it
    judge_stamp({path: {...}})            the same file after a broker's append set offsets, epoch and times
    judge_streams("decompress", streams)  what Kafka's codecs make of any bytes

Starting a JVM costs about half a second and compiling the judge one more, so every function takes many files: put the
cases of a test into one call. The jars lie in a cache that `make compat` fills; `missing()` says what is not there.
"""

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

ROOT = Path(__file__).resolve().parents[2]
POM = Path(__file__).parent / "kafka" / "pom.xml"
JUDGE = Path(__file__).parent / "kafka" / "Judge.java"
TIMEOUT_S = 300

JVM_OPTIONS = [
    "-XX:TieredStopAtLevel=1",  # a short life: the second compiler never pays
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Dfile.encoding=UTF-8",  # payloads are printed as text, on any locale
    "-Dstdout.encoding=UTF-8",
    "-Dstderr.encoding=UTF-8",
]


def kafka_version() -> str:
    """The release under test. The Maven file is the one place that names it."""
    found = re.search(r"<kafka\.version>(.+?)</kafka\.version>", POM.read_text(encoding="utf-8"))
    assert found, f"{POM} names no kafka.version"
    return found[1]


def jars() -> Path:
    """The folder of Apache Kafka's jars, whether or not it has been filled."""
    return ROOT / os.environ.get("TIDELOG_CACHE", ".cache") / f"kafka-{kafka_version()}"


@cache
def missing() -> str | None:
    """What keeps the judges from working, in words for a person; None if nothing does."""
    if shutil.which("java") is None:
        return "Java 17 or newer is not on the path"
    if not (jars() / ".complete").exists():
        return f"the jars of Apache Kafka {kafka_version()} are not in the cache: run `make compat`"
    return None


@dataclass(frozen=True)
class ToolResult:
    """What a run of one of Kafka's tools left behind. The streams are decoded as UTF-8, line ends untouched."""

    stdout: str
    stderr: str
    exit: int


def run_java(*arguments: str, stdin: str = "") -> ToolResult:
    """Run a class, or a source file, with Kafka's jars on the class path."""
    done = subprocess.run(
        ["java", *JVM_OPTIONS, "-cp", f"{jars()}/*", *arguments],
        input=stdin.encode(),
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8"},  # decides how the JVM spells file names
    )
    return ToolResult(done.stdout.decode(), done.stderr.decode(), done.returncode)


# --- the dump tool -----------------------------------------------------------------------------------------------


def dump_log(files: Iterable[Path | str], *options: str) -> ToolResult:
    """Run kafka-dump-log over the files, in the given order, in one JVM.

    The tool parts its `--files` at commas, so no path may hold one. An uncaught error in one file ends the whole run.
    """
    names = [str(file) for file in files]
    assert not any("," in name for name in names), "kafka-dump-log cannot name a file with a comma"
    return run_java("org.apache.kafka.tools.DumpLogSegments", *options, "--files", ",".join(names))


@dataclass
class DumpedRecord:
    """A record line. `fields` has every `name: value` pair before the data, as text and in the order printed.

    `control` is what the tool says of a control record, such as `endTxnMarker: COMMIT coordinatorEpoch: 7`.
    """

    fields: dict[str, str]
    key: str | None = None
    payload: str | None = None
    control: str | None = None


@dataclass
class DumpedBatch:
    """A batch line, as text and in the order printed, and the record lines below it."""

    fields: dict[str, str]
    records: list[DumpedRecord] = field(default_factory=list)


@dataclass
class DumpedFile:
    """What was printed for one file. `notes` are all lines that are neither batch nor record, such as index entries."""

    name: str
    batches: list[DumpedBatch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


_BATCH = re.compile(r"(?:baseOffset|offset): -?\d+ .*\bisvalid: (?:true|false)$")
_RECORD = re.compile(
    r"\| (?P<head>offset: -?\d+ \w+: -?\d+ keySize: (?P<key_size>-?\d+) valueSize: -?\d+"
    r"(?: sequence: -?\d+)?(?: isValid: \w+ crc: \d+)?)"  # formats 0 and 1 end here, and have no headers
    r"(?: headerKeys: \[(?P<header_keys>.*?)\](?= \w|$))?"
    r"(?P<tail>.*)",
    re.DOTALL,
)


def parse_dump(stdout: str) -> list[DumpedFile]:
    """Kafka's dump of one or more files as values.

    Keys and payloads may hold line ends: a line that starts like nothing the tool prints belongs to the payload above.
    (A payload that imitates the tool's own lines cannot be told apart; judge_read can.)
    """
    files: list[DumpedFile] = []
    for line in _logical_lines(stdout):
        if line.startswith("Dumping "):
            files.append(DumpedFile(line.removeprefix("Dumping ")))
        elif line.startswith("| offset: "):
            files[-1].batches[-1].records.append(_parse_record(line))
        elif _BATCH.match(line):
            files[-1].batches.append(DumpedBatch(_pairs(line)))
        elif files:
            files[-1].notes.append(line)
    return files


_LINE_START = re.compile(
    r"Dumping |\| offset: |(?:baseOffset|offset): -?\d+ |Log starting offset: |Found \d+ invalid bytes"
)


def _logical_lines(stdout: str) -> list[str]:
    """Physical lines, with the continuation of a record's data joined to the record."""
    lines: list[str] = []
    for line in stdout.removesuffix("\n").split("\n"):
        if lines and lines[-1].startswith("| offset: ") and not _LINE_START.match(line):
            lines[-1] += "\n" + line
        else:
            lines.append(line)
    return lines


def _parse_record(line: str) -> DumpedRecord:
    found = _RECORD.match(line)
    assert found, f"not a record line: {line!r}"
    record = DumpedRecord(_pairs(found["head"]))
    if found["header_keys"] is not None:
        record.fields["headerKeys"] = found["header_keys"]
    tail = found["tail"]
    if tail.startswith(" key: "):
        record.key, tail = _split_key(tail.removeprefix(" key: "), int(found["key_size"]))
    if tail.startswith(" payload: "):
        record.payload = tail.removeprefix(" payload: ")
    elif tail:
        record.control = tail.removeprefix(" ")
    return record


def _split_key(text: str, key_size: int) -> tuple[str, str]:
    """Part `<key>[ payload: <value>]`. The size settles it, unless bytes that are no UTF-8 were replaced."""
    encoded = text.encode()
    key, rest = encoded[:key_size], encoded[key_size:]
    if not rest or rest.startswith(b" payload: "):
        return key.decode(), rest.decode()
    before, separator, after = text.partition(" payload: ")
    return before, separator + after


def _pairs(text: str) -> dict[str, str]:
    """`a: 1 b: 2` as a dict. A value is what stands between its name and the next name."""
    parts = re.split(r"(?:^| )(\w+): ?", text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


# --- the judge ---------------------------------------------------------------------------------------------------


class RecordSpec(TypedDict, total=False):
    """One record to write. In a control batch `controlType` (and `coordinatorEpoch`, or `value`) takes its place."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    controlType: str
    coordinatorEpoch: int


class BatchSpec(TypedDict, total=False):
    """One batch to write; what is left out is Kafka's default. Without records: the empty batch of a compaction."""

    magic: int
    compression: str
    level: int
    timestampType: str
    logAppendTime: int
    maxTimestamp: int
    baseOffset: int
    lastOffset: int
    producerId: int
    producerEpoch: int
    baseSequence: int
    partitionLeaderEpoch: int
    deleteHorizonMs: int
    isTransactional: bool
    isControl: bool
    records: Sequence[RecordSpec]


@dataclass(frozen=True)
class JudgedRecord:
    """A record as Kafka's classes read it; `sequence` is -1 where there is no producer id."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    sequence: int = -1
    control_type: str | None = None


@dataclass(frozen=True)
class JudgedBatch:
    """A batch that passed every check of Kafka's. `fields` are those of its header, named as in BatchSpec."""

    fields: Mapping[str, Any]
    records: tuple[JudgedRecord, ...]


@dataclass
class Verdict:
    """One file: the batches up to the first that Kafka refuses, and its reason (`CorruptRecordException: ...`)."""

    path: Path
    batches: list[JudgedBatch] = field(default_factory=list)
    size: int = 0
    valid_bytes: int = 0
    error: str | None = None


class Refused(AssertionError):
    """Kafka does not accept the bytes, or the request to write them."""


def judge_files(paths: Iterable[Path]) -> list[Verdict]:
    """Let Kafka's classes read every batch of every file, in one JVM. A refusal is part of the verdict, not raised."""
    verdicts = [Verdict(Path(path)) for path in paths]
    result = _run_judge("read", [str(verdict.path) for verdict in verdicts])
    files = iter(verdicts)
    current = next(files, None)
    for line in result.stdout.splitlines():
        node = json.loads(line)
        assert current is not None
        assert node.pop("path") == str(current.path)
        if "records" in node:
            records = tuple(_judged_record(record) for record in node.pop("records"))
            current.batches.append(JudgedBatch(node, records))
        else:
            current.size, current.valid_bytes = node.get("size", 0), node["validBytes"]
            current.error = f"{node['error']}: {node['message']}" if "error" in node else None
            current = next(files, None)
    return verdicts


def judge_read(paths: Iterable[Path]) -> list[JudgedRecord]:
    """All records of the files, one after the other; raises Refused at the first thing Kafka does not accept."""
    records: list[JudgedRecord] = []
    for verdict in judge_files(paths):
        if verdict.error is not None:
            raise Refused(f"{verdict.path.name}, position {verdict.valid_bytes}: {verdict.error}")
        if verdict.valid_bytes != verdict.size:
            raise Refused(f"{verdict.path.name}: {verdict.size - verdict.valid_bytes} bytes after the last whole batch")
        for batch in verdict.batches:
            records += batch.records
    return records


def judge_write(spec: Iterable[BatchSpec], path: Path) -> None:
    """Let Kafka's MemoryRecordsBuilder write these batches into a new file."""
    judge_write_all({path: spec})


def judge_write_all(specs: Mapping[Path, Iterable[BatchSpec]]) -> None:
    """`judge_write` for many files in one JVM."""
    lines = []
    for path, batches in specs.items():
        plain = [{"records": [], **batch} for batch in batches]
        lines.append(json.dumps({"path": str(path), "batches": plain}, default=_base64))
    _run_judge("write", lines)


class Stamp(TypedDict, total=False):
    """What a broker sets on the batches of a file; `timestampType` and `maxTimestamp` go together."""

    lastOffset: int
    leaderEpoch: int
    timestampType: str
    maxTimestamp: int


def judge_stamp(stamps: Mapping[Path, Stamp]) -> None:
    """Let Kafka's classes change the batches of files in place, in one JVM."""
    _run_judge("stamp", [json.dumps({"path": str(path), **stamp}) for path, stamp in stamps.items()])


class Stream(NamedTuple):
    """Bytes for one of Kafka's codecs: plain ones to compress, or a stream to decompress."""

    codec: str
    magic: int
    data: bytes


def judge_streams(verb: Literal["compress", "decompress"], streams: Iterable[Stream]) -> list[bytes | str]:
    """What Kafka's codec makes of each, or the error it ends with (`IOException: ...`), in one JVM."""
    lines = [json.dumps(stream._asdict(), default=_base64) for stream in streams]
    answers = [json.loads(line) for line in _run_judge(verb, lines).stdout.splitlines()]
    assert len(answers) == len(lines)
    return [answer["error"] if "error" in answer else base64.b64decode(answer["data"]) for answer in answers]


def _run_judge(verb: str, lines: list[str]) -> ToolResult:
    result = run_java(str(JUDGE), verb, stdin="".join(line + "\n" for line in lines))
    if result.exit != 0:
        raise Refused(f"the judge could not {verb}:\n{result.stderr}")
    return result


def _judged_record(node: dict[str, Any]) -> JudgedRecord:
    return JudgedRecord(
        offset=node["offset"],
        timestamp=node["timestamp"],
        key=_bytes(node["key"]),
        value=_bytes(node["value"]),
        headers=tuple((key, _bytes(value)) for key, value in node["headers"]),
        sequence=node["sequence"],
        control_type=node.get("controlType"),
    )


def _base64(data: object) -> str:
    assert isinstance(data, bytes | bytearray | memoryview), f"{type(data).__name__} has no place in a batch"
    return base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
