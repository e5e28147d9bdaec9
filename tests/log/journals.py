"""Journals for tests, and hostile ones: sound ones with fields, lines or bytes changed and the checksum put right."""

import json
import random
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tidelog.log.journal_format import LoadGroup, PartitionNote, Piece, WriteJournal, WriteKind, encode
from tidelog.log.names import TopicPartition, delete_directory_name
from tidelog.records.checksum import crc32c_of

__all__ = ["COMMIT", "GROUP", "LOAD", "Lines", "large", "lines_of", "mutated", "plausible", "sealed"]

Lines = list[Any]


def piece(topic: str, number: int, uid: str, records: int) -> Piece:
    directory = delete_directory_name(TopicPartition(topic, number), uid)
    return Piece(topic, number, directory, 70 + records, records, 1234, "host")


LOAD = WriteJournal(
    WriteKind.LOAD,
    b'{"version":0,"brokerEpoch":14}',
    partitions={
        TopicPartition("orders", 0): PartitionNote(False, True, 2, 0, 2, 2, 5),
        TopicPartition("orders", 1): PartitionNote(True, end_then=4),
        TopicPartition("orders", 2): PartitionNote(False, recovery_point=-1),
    },
)
GROUP = replace(LOAD, group=LoadGroup("7c" * 16, 1, ("/d1", "/d2"), {TopicPartition("orders", 3): 12}))
COMMIT = WriteJournal(
    WriteKind.COMMIT,
    None,
    configs={"segment.bytes": "1024"},
    stream=("0d7c", 4),
    topic_ids={"orders": uuid.UUID(int=7), "other": None},
    partitions={
        TopicPartition("orders", 0): PartitionNote(
            False, end=2, epoch=0, recovery_point=2, high_watermark=2, end_then=5,
            pieces=(piece("orders", 0, "a" * 32, 1), piece("orders", 0, "b" * 32, 2)),
        ),
        TopicPartition("other", 3): PartitionNote(True, end=0, epoch=0, end_then=0),
    },
    dropped=[TopicPartition("other", 4)],
)  # fmt: skip

_HOSTILE: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**32, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 1.5, float("nan"),
    float("inf"), "", ".", "..", "/", "../x", "/etc", "a/b", "a\x00b", "orders", "orders-0", "__cluster_metadata",
    "x" * 300, "\ud800", "\u202e", "0", "victim-0", "victim-0.00000000000000000000000000000000-delete",
    "unfinished-write.run-tidelog-recover",
    "../orders-0." + "a" * 32 + "-delete", "orders-0." + "a" * 32 + "-delete/..", "commit", "load", "A" * 32, "f" * 32,
    [], {}, [[]], ["0d7c", 4], ["0d7c", -1], ["0d7c", True], [None, 4], {"segment.bytes": "1"}, {"segment.bytes": 1024},
    {"nobody": "1"}, {"a": {}}, ["/", "/etc"], ["/dev/zero", "/dev/tty"], ["a" * 4000, "b"],
    ["../backup", "."], ["/proc/self/mem", "/d2"], ["/d1", "/d1"],
]  # fmt: skip


def lines_of(journal: WriteJournal) -> Lines:
    """The lines of a journal, without the last."""
    return [json.loads(line) for line in encode(journal).splitlines()[:-1]]


def sealed(lines: Lines, count: int | None = None) -> bytes:
    """Lines with the last one that they want."""
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    end = {"line": "end", "lines": len(lines) if count is None else count, "crc": crc32c_of(body)}
    return body + json.dumps(end).encode() + b"\n"


def mutated(journal: WriteJournal, rng: random.Random) -> bytes:
    """A journal with something changed in it; sometimes with more than one thing."""
    lines = lines_of(journal)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        rng.choice((_change_field, _change_field, _change_field, _change_lines, _move_field))(lines, rng)
    data = sealed(lines)
    if rng.random() < 0.15:
        data = _change_bytes(data, rng)
    return data


def large(journal: WriteJournal, rng: random.Random) -> bytes:
    """A journal with one line again and again, some 60 MB."""
    first, *rest = encode(journal).splitlines(keepends=True)
    filler = rng.choice((b"\n", b"{}\n", b"[[],[],[]]\n", b"[" + b"[]," * 200_000 + b"[]]\n", *rest[:-1]))
    body = b"".join([first, *rest[:-1]]) + filler * ((60 << 20) // len(filler))
    end = {"line": "end", "lines": body.count(b"\n"), "crc": crc32c_of(body)}
    return body + json.dumps(end).encode() + b"\n"


def plausible(rng: random.Random, topics: Sequence[str]) -> WriteJournal:
    """A journal that is valid and tells of anything: logs that are longer, shorter, gone, or somebody else's."""
    is_commit = rng.random() < 0.5
    journal = WriteJournal(WriteKind.COMMIT if is_commit else WriteKind.LOAD, rng.choice((None, b"{}", b"")))
    journal.was_empty = not is_commit and rng.random() < 0.2
    for topic in rng.sample(list(topics), rng.randint(1, len(topics))):
        number = rng.choice((0, 0, 0, 1))
        offsets = rng.choice((4, 4, 4, 4, None, -1, 5, 2**62)), rng.choice((None, 4, 5))  # where logs of four end
        is_new, end = rng.random() < 0.4, rng.choice((0, 1, 3, 4, 5, 100, 2**62))
        note = PartitionNote(is_new, rng.random() < 0.5, None if is_new else end, rng.choice((0, 3)), *offsets)
        if is_commit:
            journal.topic_ids[topic] = rng.choice((None, None, None, uuid.UUID(int=rng.getrandbits(128))))
            end = 0 if is_new else end
            pieces = (piece(topic, number, rng.choice("ab") * 32, 1),) if rng.random() < 0.3 else ()
            note = note._replace(end=end, end_then=end + len(pieces), pieces=pieces, is_replaced=is_new)
            if rng.random() < 0.2:
                journal.dropped.append(TopicPartition(topic, 0))
                continue
        elif rng.random() < 0.5:
            note = note._replace(end_then=(note.end or 0) + rng.randrange(3))
        journal.partitions[TopicPartition(topic, number)] = note
    return journal


def _change_field(lines: Lines, rng: random.Random) -> None:
    line = rng.choice(lines) if lines else None
    if type(line) is not dict:
        return
    name = rng.choice([*line, "nobody"])
    if rng.random() < 0.1:
        line.pop(name, None)
    elif type(line.get(name)) is int and rng.random() < 0.4:
        line[name] += rng.choice((-1, 1, 2, 1 << 31, 1 << 62))
    else:
        line[name] = rng.choice(_HOSTILE)


def _move_field(lines: Lines, rng: random.Random) -> None:
    """What is right in one line is put into another."""
    one, two = rng.choice(lines), rng.choice(lines)
    if type(one) is dict and type(two) is dict and one:
        name = rng.choice(list(one))
        two[name] = one[name]


def _change_lines(lines: Lines, rng: random.Random) -> None:
    number = rng.randrange(len(lines))
    deed = rng.randrange(5)
    if deed == 0 and len(lines) > 1:
        del lines[number]
    elif deed == 1:
        lines.insert(rng.randrange(len(lines) + 1), json.loads(json.dumps(lines[number])))
    elif deed == 2:
        rng.shuffle(lines)
    elif deed == 3:
        lines.insert(number, rng.choice(_HOSTILE))
    else:
        other = rng.choice((LOAD, COMMIT, GROUP))
        lines.append(rng.choice(lines_of(other)))


def _change_bytes(data: bytes, rng: random.Random) -> bytes:
    deed, place = rng.randrange(4), rng.randrange(len(data))
    if deed == 0:
        return data[:place]
    if deed == 1:
        return data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]
    if deed == 2:
        return (
            data[:place] + rng.choice((b"[" * 5000, b"\n" * 1000, b"9" * 6000, b"\xff\xfe", b"{" * 100)) + data[place:]
        )
    return data + data[place:]
