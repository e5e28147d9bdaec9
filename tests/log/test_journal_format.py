"""The format of a journal: what is written is read back, and nothing else is believed."""

import json
import random
import subprocess
import sys
from typing import Any

import pytest

from tests.log.journals import COMMIT, GROUP, LOAD, lines_of, mutated, sealed
from tidelog.errors import CheckpointError, InvalidRequestError
from tidelog.log import journal_format
from tidelog.log.journal_format import (
    MOST_BYTES,
    PartitionNote,
    WriteJournal,
    WriteKind,
    decode,
    encode,
    ensure_fits,
)
from tidelog.log.names import TopicPartition, parse_directory_name

UID = "c" * 32


@pytest.mark.parametrize("journal", [LOAD, GROUP, COMMIT, WriteJournal(WriteKind.LOAD)])
def test_a_journal_is_read_as_it_was_written(journal: WriteJournal) -> None:
    assert decode(encode(journal)) == journal


@pytest.mark.parametrize("directory", [
    "..", ".", "", "/", "/etc", "a/b", f"../orders-0.{UID}-delete", f"orders-1.{UID}-delete", f"other-0.{UID}-delete",
    "orders-0", "victim-0", f"orders-0.{UID}-stray", f"orders-0.{UID[1:]}-delete", f"orders-0.{UID}-delete\x00",
    f"orders-0.{UID.upper()}-delete", f"orders-0.x.{UID}-delete", "orders-0." + "\u0663" * 32 + "-delete", "x" * 300,
])  # fmt: skip
def test_a_piece_lies_in_a_staged_directory_of_its_partition(directory: str) -> None:
    lines = lines_of(COMMIT)
    first = next(line for line in lines if line["line"] == "piece")
    first["directory"] = f"orders-0.{UID}-delete"
    assert decode(sealed(lines)).pieces[0].directory == first["directory"]
    first["directory"] = directory
    with pytest.raises(CheckpointError, match="is not the name of a staged directory of orders-0"):
        decode(sealed(lines))


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a\x00", "a b", "x" * 300, "__cluster_metadata", None, 5, []])
@pytest.mark.parametrize("kind", ["topic", "partition", "piece", "dropped"])
def test_a_topic_has_a_name_that_a_directory_can_have(kind: str, topic: Any) -> None:
    lines = lines_of(COMMIT)
    next(line for line in lines if line["line"] == kind)["topic"] = topic
    with pytest.raises(CheckpointError, match=f"is no 'topic' of '{kind}'"):
        decode(sealed(lines))


def wrong_lines() -> list[tuple[str, str, Any, str]]:
    return [
        ("write", "version", 2, "it is of version 2, this release reads version 1"),
        ("write", "kind", "move", "no 'kind'"),
        ("write", "marker", "\u0100", "no 'marker'"),
        ("write", "configs", {"segment.bytes": "x"}, "no 'configs'"),
        ("write", "stream", ["q", -1], "no 'stream'"),
        ("write", "was_empty", 1, "no 'was_empty'"),
        ("write", "was_empty", True, "has a field of a load"),
        ("topic", "id", "7", "no 'id'"),
        ("partition", "partition", -1, "no 'partition'"),
        ("partition", "partition", True, "no 'partition'"),
        ("partition", "is_new", None, "no 'is_new'"),
        ("partition", "is_new", True, "is new, and ended at 2"),
        ("partition", "is_replaced", True, "is replaced, which only a commit does, and is not new"),
        ("partition", "end", -1, "no 'end'"),
        ("partition", "end", 2**63, "no 'end'"),
        ("partition", "end", 1.0, "no 'end'"),
        ("partition", "end", None, "a commit knows end, epoch and next end"),
        ("partition", "end", 3, "ends at 5 after 3 records from 3 on"),
        ("partition", "epoch", -1, "a commit knows end, epoch and next end"),
        ("partition", "end_then", 1, "ends at 1 after the write, before it at 2"),
        ("partition", "end_then", 6, "ends at 6 after 3 records from 2 on"),
        ("piece", "size", 0, "no 'size'"),
        ("piece", "records", 2, "ends at 5 after 4 records"),
        ("piece", "crc", 2**32, "no 'crc'"),
        ("piece", "host", "a\nb", "no 'host'"),
        ("piece", "partition", 1, "a piece of orders-1, which is not written to"),
        ("piece", "directory", f"orders-0.{'b' * 32}-delete", "was noted before"),
        ("dropped", "partition", 3, "other-3 was noted before"),
        ("dropped", "topic", "another", "has no line of its own"),
    ]


@pytest.mark.parametrize(("kind", "name", "value", "told"), wrong_lines())
def test_every_field_is_checked(kind: str, name: str, value: Any, told: str) -> None:
    lines = lines_of(COMMIT)
    next(line for line in lines if line["line"] == kind)[name] = value
    with pytest.raises(CheckpointError, match=told):
        decode(sealed(lines))


@pytest.mark.parametrize("data", [
    b"", b"\n", b"[]", b"{}", b"null\n", b"[" * 100_000, b"9" * 6000, b"\xff\xfe", b'{"version": 99}',
    encode(COMMIT)[:-1] + b" ", encode(COMMIT)[:100], encode(COMMIT).replace(b"1234", b"1235"),
    encode(COMMIT) + b"\n", sealed(lines_of(COMMIT), 3), sealed(lines_of(COMMIT)[1:]),
    sealed([*lines_of(LOAD), {"line": "end"}]),
    sealed([*lines_of(LOAD), *lines_of(COMMIT)[1:]]), sealed([lines_of(LOAD)[0], lines_of(LOAD)[0]]),
    encode(LOAD).replace(b'"line":"partition",', b'"line":"partition","line":"partition",'),
])  # fmt: skip
def test_bytes_that_are_no_journal_are_rejected(data: bytes) -> None:
    with pytest.raises(CheckpointError):
        decode(data)


def test_a_journal_that_nobody_could_read_is_not_written() -> None:
    partitions = {TopicPartition("orders", 0): PartitionNote(True, end=5)}
    with pytest.raises(InvalidRequestError, match=r"cannot be noted in a journal: line 2: orders-0 is new"):
        encode(WriteJournal(WriteKind.LOAD, partitions=partitions))


def test_mutated_journals_name_children_of_the_root_only() -> None:
    rng = random.Random(16)
    sound = 0
    for _ in range(1500):
        try:
            journal = decode(mutated(rng.choice((LOAD, GROUP, COMMIT)), rng))
        except CheckpointError:
            continue
        sound += 1
        for place in (*journal.partitions, *journal.dropped):
            assert parse_directory_name(str(place)) == place
            assert "/" not in str(place)
        for piece in journal.pieces:
            assert parse_directory_name(piece.directory).partition == piece.partition
        assert json.loads(encode(journal).splitlines()[0])["version"] == 1
    assert sound > 20  # a change may be harmless: another host, another offset


def test_a_hostile_journal_takes_little_memory() -> None:
    """A line of a megabyte at most, one after the other, and none beyond the first that is wrong."""
    program = (
        "import resource; from tests.log.journals import *; from tidelog.log.journal_format import *\n"
        "from tidelog.errors import CheckpointError; from tidelog.records.checksum import crc32c_of; import json\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1_500_000_000,) * 2)\n"
        f"most = {MOST_BYTES}\n"
        "first = encode(LOAD).splitlines()[0] + b'\\n'\n"
        "for filler in (b'\\n', b'[[],[],[],[]]\\n', b'[' + b'[],' * 200000 + b'[]]\\n', b'0', b'{}\\n'):\n"
        "    body = first + filler * ((most - 1000) // len(filler)) + b'\\n'\n"
        "    end = json.dumps({'line': 'end', 'lines': body.count(b'\\n'), 'crc': crc32c_of(body)}).encode()\n"
        "    try: decode(body + end + b'\\n'); print('believed')\n"
        "    except CheckpointError as error: print(str(error)[:60])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 5, done.stdout
    assert "believed" not in done.stdout


def test_what_lies_in_the_first_directory_is_noted_in_the_others_and_once() -> None:
    lines = lines_of(GROUP)
    number = next(number for number, line in enumerate(lines) if line["line"] == "first")
    with pytest.raises(CheckpointError, match="does not say what lies in the first directory"):
        decode(sealed(lines[:number] + lines[number + 1 :]))
    with pytest.raises(CheckpointError, match="orders-3 is noted once, in the other directories"):
        decode(sealed([*lines[: number + 1], *lines[number:]]))
    with pytest.raises(CheckpointError, match="orders-3 is noted once, in the other directories"):
        decode(sealed([lines[0], *lines[number:]]))
    lines[number - 1]["number"] = 0
    with pytest.raises(CheckpointError, match="orders-3 is noted once, in the other directories"):
        decode(sealed(lines))


@pytest.mark.parametrize("journal", [LOAD, GROUP, COMMIT])
def test_a_journal_fits_where_it_can_be_encoded(journal: WriteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(encode(journal))
    monkeypatch.setattr(journal_format, "MOST_BYTES", size + 64)
    ensure_fits(journal)
    monkeypatch.setattr(journal_format, "MOST_BYTES", size - 1)
    with pytest.raises(InvalidRequestError, match=f"and {size - 1} are the most"):
        ensure_fits(journal)
