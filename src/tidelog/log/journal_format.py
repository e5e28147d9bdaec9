"""The format of a journal: what a load or a write of Spark's changes, and how the logs were before.

A journal is text, one JSON object per line. The field `line` says what an object is:

    {"line":"write","version":1,"kind":"commit","marker":null,"was_empty":false,"configs":{},"stream":null}
    {"line":"group","id":"91ab…","number":0,"roots":["/d1","/d2"]}
    {"line":"first","topic":"orders","partition":2,"end":12}
    {"line":"topic","topic":"orders","id":"7c0f…"}
    {"line":"partition","topic":"orders","partition":0,"is_new":false,"is_replaced":false,"end":5,"epoch":0,…}
    {"line":"piece","topic":"orders","partition":0,"directory":"orders-0.4f…-delete","size":812,"records":9,…}
    {"line":"dropped","topic":"orders","partition":3}
    {"line":"end","lines":5,"crc":2774061384}

`write` comes first and `end` last; the others follow in this order. The checksum of `end` (CRC-32C) covers every byte
before its line.

A journal is untrusted: whoever can write to the log directory can write one, and following it removes directories.
`decode` therefore checks each field by itself (`_FIELDS`), rejects fields that it does not know, and then checks that
the lines agree with each other. What it returns names only partition directories and staged directories of the root.
The writer decodes what it has encoded, so it cannot leave a journal that nobody reads.
"""

import io
import json
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

from tidelog.errors import CheckpointError, InvalidRequestError
from tidelog.log.config import LogConfig
from tidelog.log.file_sizes import kind_of
from tidelog.log.files import join
from tidelog.log.names import (
    CLUSTER_METADATA_TOPIC,
    JOURNAL_FILE,
    STAGED_FILE,
    TopicPartition,
    check_partition,
    delete_directory_name,
)
from tidelog.records.checksum import crc32c_of
from tidelog.records.java import MAX_INT32

__all__ = [
    "MOST_BYTES",
    "LoadGroup",
    "PartitionNote",
    "Piece",
    "WriteJournal",
    "WriteKind",
    "decode",
    "encode",
    "ensure_fits",
]

VERSION = 1
MOST_BYTES = kind_of(JOURNAL_FILE).largest  # some 300,000 pieces
_MOST_LINE_BYTES = 1 << 20
_MOST_END_BYTES = 64  # of the last line
_MAX_INT64 = (1 << 63) - 1
_MOST_ROOTS = 1000
_MOST_TEXT = 4096  # characters in a text that is nobody's name
_STAGED_ENDING = re.compile(r"\.([0-9a-f]{32})-delete")


class WriteKind(Enum):
    """Which write is unfinished. Recovery takes a load back, and finishes a commit of Spark's."""

    LOAD = "load"
    COMMIT = "commit"

    @property
    def words(self) -> str:
        """The write, in a sentence."""
        return "a load" if self is WriteKind.LOAD else "a write of Spark's"


class LoadGroup(NamedTuple):
    """A load into several log directories, which is done in all of them or in none.

    It is decided when the journal of the first directory goes. The paths are only looked at, never written to. That no
    journal is there may as well mean that the directory is not mounted: the others know what else is to be found there.
    """

    id: str
    number: int  # of this directory
    roots: tuple[str, ...]
    first_ends: dict[TopicPartition, int]  # of the logs in the first directory after the load; in that one itself none


class Piece(NamedTuple):
    """A staged file, and what must be found in it."""

    topic: str
    partition: int
    directory: str  # its name in the root
    size: int
    records: int
    crc: int  # CRC-32C of all bytes
    host: str  # where it was written

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def path(self, root: str) -> str:
        """Where the file is."""
        return join(join(root, self.directory), STAGED_FILE)


class PartitionNote(NamedTuple):
    """How a partition was before the write, and where its log ends after it.

    Of a load, `end` is None until the log is opened, and of a new partition always; `end_then` is None until
    everything is appended. `is_new` says that the log begins with offset 0: there was none, or a commit replaces it.
    """

    is_new: bool
    has_topic_id: bool = False
    end: int | None = None
    epoch: int | None = None
    recovery_point: int | None = None
    high_watermark: int | None = None
    end_then: int | None = None
    is_replaced: bool = False  # it was there before, and a commit makes it anew
    pieces: tuple[Piece, ...] = ()

    @property
    def is_made(self) -> bool:
        """Whether the write makes the partition: readers do not see it before the write is finished."""
        return self.is_new and not self.is_replaced

    @property
    def shown_end(self) -> int | None:
        """Where readers see the log end while the write is unfinished; None where it has not touched the log."""
        return 0 if self.is_new else self.end


@dataclass
class WriteJournal:
    """The content of a journal."""

    kind: WriteKind
    marker: bytes | None = None  # of the clean shutdown; None where there was none
    was_empty: bool = False  # there was nothing in the root, or no root
    configs: dict[str, str] = field(default_factory=dict)
    stream: tuple[str, int] | None = None  # the query and its batch that are committed
    topic_ids: dict[str, uuid.UUID | None] = field(default_factory=dict)
    partitions: dict[TopicPartition, PartitionNote] = field(default_factory=dict)
    dropped: list[TopicPartition] = field(default_factory=list)  # of a topic that gets fewer partitions
    group: LoadGroup | None = None  # of a load, once everything is appended in all of its directories

    @property
    def pieces(self) -> list[Piece]:
        """The staged pieces of all partitions."""
        return [piece for note in self.partitions.values() for piece in note.pieces]


_to_json = json.JSONEncoder(separators=(",", ":")).encode


# -- writing -----------------------------------------------------------------------------------------------------------


def encode(journal: WriteJournal) -> bytes:
    """The bytes of a journal. Raises InvalidRequestError for one that `decode` would reject."""
    body = "".join(f"{_to_json(line)}\n" for line in _lines(journal)).encode()
    end = {"line": "end", "lines": body.count(b"\n"), "crc": crc32c_of(body)}
    data = body + _to_json(end).encode() + b"\n"
    try:
        decode(data)
    except CheckpointError as error:
        raise InvalidRequestError(f"this write cannot be noted in a journal: {error}") from error
    return data


def ensure_fits(journal: WriteJournal) -> None:
    """Raise InvalidRequestError if this is more than a journal holds, without the work of `encode`."""
    size = sum(len(_to_json(line)) + 1 for line in _lines(journal)) + _MOST_END_BYTES
    if size > MOST_BYTES:
        raise InvalidRequestError(
            f"the tasks have staged {len(journal.pieces)} pieces: their journal takes {size} bytes, and {MOST_BYTES} "
            "are the most. Let fewer tasks write, or repartition the rows by partition, or divide the write; nothing "
            "is committed"
        )


def _lines(journal: WriteJournal) -> Iterator[dict[str, Any]]:
    yield {
        "line": "write",
        "version": VERSION,
        "kind": journal.kind.value,
        "marker": None if journal.marker is None else journal.marker.decode("latin-1"),
        "was_empty": journal.was_empty,
        "configs": journal.configs,
        "stream": journal.stream,
    }
    if journal.group is not None:
        known_group = journal.group._asdict()
        del known_group["first_ends"]
        yield {"line": "group", **known_group}
        for place, end in journal.group.first_ends.items():
            yield {"line": "first", **place._asdict(), "end": end}
    for topic, known in journal.topic_ids.items():
        yield {"line": "topic", "topic": topic, "id": None if known is None else known.hex}
    for place, note in journal.partitions.items():
        known_fields = note._asdict()
        del known_fields["pieces"]
        yield {"line": "partition", **place._asdict(), **known_fields}
    for piece in journal.pieces:
        yield {"line": "piece", **piece._asdict()}
    for place in journal.dropped:
        yield {"line": "dropped", **place._asdict()}


# -- fields ------------------------------------------------------------------------------------------------------------

Check = Callable[[Any], bool]


def _is_boolean(value: Any) -> bool:
    return type(value) is bool


def _whole(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def _or_null(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _is_text(value: Any) -> bool:
    return type(value) is str and 0 < len(value) <= _MOST_TEXT and value.isprintable()


def _is_marker(value: Any) -> bool:
    return type(value) is str and len(value) <= _MOST_TEXT and all(ord(character) < 256 for character in value)


def _is_stream(value: Any) -> bool:
    return type(value) is list and len(value) == 2 and _is_text(value[0]) and _whole(0, _MAX_INT64)(value[1])


def _are_roots(value: Any) -> bool:
    return type(value) is list and 1 < len(value) <= _MOST_ROOTS and all(map(_is_text, value))


def _is_hex_id(value: Any) -> bool:
    return type(value) is str and re.fullmatch(r"[0-9a-f]{32}", value) is not None


def _is_topic(value: Any) -> bool:
    return type(value) is str and value != CLUSTER_METADATA_TOPIC and _is_name(value)


@lru_cache(256)  # every line has one, and a journal few
def _is_name(topic: str) -> bool:
    try:
        check_partition(TopicPartition(topic, 0))
    except InvalidRequestError:
        return False
    return True


def _is_configs(value: Any) -> bool:
    if type(value) is not dict or any(type(each) is not str for each in value.values()):
        return False
    try:
        LogConfig.from_properties(value)
    except InvalidRequestError:
        return False
    return True


_OFFSET = _whole(0, _MAX_INT64)
_ANY_INT64 = _whole(-_MAX_INT64 - 1, _MAX_INT64)
_PLACE: dict[str, Check] = {"topic": _is_topic, "partition": _whole(0, MAX_INT32)}
_FIELDS: dict[str, dict[str, Check]] = {
    "write": {
        "version": _whole(VERSION, VERSION),
        "kind": lambda value: value in {kind.value for kind in WriteKind} if type(value) is str else False,
        "marker": _or_null(_is_marker),
        "was_empty": _is_boolean,
        "configs": _is_configs,
        "stream": _or_null(_is_stream),
    },
    "group": {"id": _is_hex_id, "number": _whole(0, _MOST_ROOTS), "roots": _are_roots},
    "first": {**_PLACE, "end": _OFFSET},
    "topic": {"topic": _is_topic, "id": _or_null(_is_hex_id)},
    "partition": {
        **_PLACE,
        "is_new": _is_boolean,
        "is_replaced": _is_boolean,
        "has_topic_id": _is_boolean,
        "end": _or_null(_OFFSET),
        "epoch": _or_null(_whole(-MAX_INT32 - 1, MAX_INT32)),
        "recovery_point": _or_null(_ANY_INT64),  # as the checkpoint has it, whatever that is
        "high_watermark": _or_null(_ANY_INT64),
        "end_then": _or_null(_OFFSET),
    },
    "piece": {
        **_PLACE,
        "directory": lambda value: type(value) is str,  # compared with the name it must have, below
        "size": _whole(1, _MAX_INT64),
        "records": _whole(1, _MAX_INT64),
        "crc": _whole(0, (1 << 32) - 1),
        "host": _is_text,
    },
    "dropped": _PLACE,
    "end": {"lines": _whole(1, MAX_INT32), "crc": _whole(0, (1 << 32) - 1)},
}
_ORDER = list(_FIELDS)


# -- reading -----------------------------------------------------------------------------------------------------------


def decode(data: bytes) -> WriteJournal:
    """The journal in some bytes. Raises CheckpointError, with a sentence, for anything that is none."""
    if len(data) > MOST_BYTES:
        raise CheckpointError(f"it has {len(data)} bytes, a journal has {MOST_BYTES} at most")
    last = data.rfind(b"\n", 0, len(data) - 1) + 1
    try:
        reading = _Reading(_parsed(data[: _MOST_LINE_BYTES + 1].partition(b"\n")[0], 1))
        if not data.endswith(b"\n"):
            raise CheckpointError("its last line is not complete")
        end = _checked("end", _parsed(data[last:].removesuffix(b"\n"), None), "the last line")
        if end["crc"] != crc32c_of(memoryview(data)[:last]):
            raise CheckpointError("its checksum is not that of its lines")
        number = 1
        for number, text in enumerate(io.BytesIO(data[:last]), 1):
            if number > 1:
                reading.add(_parsed(text, number), f"line {number}")
        if number != end["lines"]:
            raise CheckpointError(f"it has {number} lines and {end['lines']} were written")
        return reading.journal()
    except (ValueError, RecursionError) as error:  # of json: no JSON, or a number of too many digits
        raise CheckpointError(f"it is not of the format of a journal ({error})") from None


def _parsed(text: bytes, number: int | None) -> Any:
    if len(text) > _MOST_LINE_BYTES:
        where = "the last line" if number is None else f"line {number}"
        raise CheckpointError(f"{where} has more than {_MOST_LINE_BYTES} bytes")
    return _from_json(text.decode())


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is there twice")
    return found


def _checked(line: str, content: Any, where: str) -> dict[str, Any]:
    """The fields of a line, each as it must be."""
    if type(content) is not dict or content.get("line") != line:
        raise CheckpointError(f"{where} is not the line {line!r} of a journal")
    fields = _FIELDS[line]
    if content.keys() != {"line", *fields}:
        raise CheckpointError(f"{where} has not the fields of {line!r}: {', '.join(fields)}")
    for name, is_right in fields.items():
        if not is_right(content[name]):
            raise CheckpointError(f"{where}: {_short(content[name])} is no {name!r} of {line!r}")
    return content


def _short(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


_from_json = json.JSONDecoder(object_pairs_hook=_each_once).decode


class _Reading:
    """The lines of a journal so far."""

    def __init__(self, first: Any) -> None:
        version = first.get("version") if type(first) is dict else None
        if type(version) is int and version != VERSION:
            raise CheckpointError(f"it is of version {version}, this release reads version {VERSION}")
        header = _checked("write", first, "line 1")
        marker, stream = header["marker"], header["stream"]
        self._journal = WriteJournal(
            WriteKind(header["kind"]),
            None if marker is None else marker.encode("latin-1"),
            header["was_empty"],
            header["configs"],
            None if stream is None else (stream[0], stream[1]),
        )
        self._stage = 1
        self._pieces: dict[TopicPartition, list[Piece]] = {}
        self._directories: set[str] = set()
        self._dropped: set[TopicPartition] = set()

    def add(self, content: Any, where: str) -> None:
        """Take in a line."""
        line = content.get("line") if type(content) is dict else None
        stage = _ORDER.index(line) if line in _ORDER[1:-1] else 0
        if stage < self._stage:
            raise CheckpointError(f"{where} is of no kind that can stand there")
        self._stage = stage
        fields = _checked(_ORDER[stage], content, where)
        del fields["line"]
        if line == "group":
            self._add_group(LoadGroup(fields["id"], fields["number"], tuple(fields["roots"]), {}), where)
            return
        if line == "topic":
            self._add_topic(fields["topic"], fields["id"], where)
            return
        place = TopicPartition(fields["topic"], fields["partition"])
        if line == "piece" and place in self._journal.partitions:
            self._add_piece(Piece(**fields), where)  # most lines, and their partitions are checked
            return
        try:
            check_partition(place)
        except InvalidRequestError as error:
            raise CheckpointError(f"{where}: {error}") from None
        if line == "first":
            self._add_first(place, fields["end"], where)
        elif line == "partition":
            del fields["topic"], fields["partition"]
            self._add_partition(place, PartitionNote(**fields), where)
        elif line == "piece":
            raise CheckpointError(f"{where}: a piece of {place}, which is not written to")
        else:
            self._add_dropped(place, where)

    def _add_group(self, group: LoadGroup, where: str) -> None:
        if self._journal.kind is not WriteKind.LOAD or self._journal.group is not None:
            raise CheckpointError(f"{where}: a load has one group, and nothing else has any")
        if group.number >= len(group.roots) or len(set(group.roots)) != len(group.roots):
            raise CheckpointError(f"{where}: {group.number} is none of {len(group.roots)} log directories")
        self._journal.group = group

    def _add_first(self, place: TopicPartition, end: int, where: str) -> None:
        group = self._journal.group
        if group is None or not group.number or place in group.first_ends:
            raise CheckpointError(f"{where}: {place} is noted once, in the other directories of a group")
        group.first_ends[place] = end

    def _add_topic(self, topic: str, known: str | None, where: str) -> None:
        if topic in self._journal.topic_ids:
            raise CheckpointError(f"{where}: {topic} was noted before")
        self._journal.topic_ids[topic] = None if known is None else uuid.UUID(hex=known)

    def _add_partition(self, place: TopicPartition, note: PartitionNote, where: str) -> None:
        if place in self._journal.partitions:
            raise CheckpointError(f"{where}: {place} was noted before")
        is_commit = self._journal.kind is WriteKind.COMMIT
        if is_commit and (note.end is None or note.end_then is None or note.epoch is None or note.epoch < 0):
            raise CheckpointError(f"{where}: a commit knows end, epoch and next end of {place}")
        if note.is_replaced and not (is_commit and note.is_new):
            raise CheckpointError(f"{where}: {place} is replaced, which only a commit does, and is not new")
        if note.is_new and note.end not in (None, 0):
            raise CheckpointError(f"{where}: {place} is new, and ended at {note.end}")
        if note.end_then is not None and note.end_then < (note.end or 0):
            raise CheckpointError(f"{where}: {place} ends at {note.end_then} after the write, before it at {note.end}")
        self._journal.partitions[place] = note

    def _add_piece(self, piece: Piece, where: str) -> None:
        uid = _STAGED_ENDING.fullmatch(piece.directory[-40:])
        if uid is None or piece.directory != delete_directory_name(piece.place, uid[1]):
            raise CheckpointError(
                f"{where}: {_short(piece.directory)} is not the name of a staged directory of {piece.place}"
            )
        if piece.directory in self._directories:
            raise CheckpointError(f"{where}: {piece.directory} was noted before")
        self._directories.add(piece.directory)
        self._pieces.setdefault(piece.place, []).append(piece)

    def _add_dropped(self, place: TopicPartition, where: str) -> None:
        if place in self._journal.partitions or place in self._dropped:
            raise CheckpointError(f"{where}: {place} was noted before")
        self._dropped.add(place)
        self._journal.dropped.append(place)

    def journal(self) -> WriteJournal:
        """The whole of it, if its lines agree."""
        journal = self._journal
        for place, pieces in self._pieces.items():
            journal.partitions[place] = journal.partitions[place]._replace(pieces=tuple(pieces))
        if journal.kind is WriteKind.LOAD:
            if journal.configs or journal.stream or journal.topic_ids or journal.dropped or self._pieces:
                raise CheckpointError("it is of a load, and has lines or fields of a commit")
            if journal.group is not None and journal.group.number and not journal.group.first_ends:
                raise CheckpointError("it does not say what lies in the first directory of its group")
            return journal
        topics = {place.topic for place in (*journal.partitions, *journal.dropped)}
        if not topics <= journal.topic_ids.keys():
            raise CheckpointError("a topic of its partitions has no line of its own")
        if journal.was_empty:
            raise CheckpointError("it is of a commit, and has a field of a load")
        for place, note in journal.partitions.items():
            records = sum(piece.records for piece in note.pieces)
            if note.end is None or note.end_then != note.end + records:
                raise CheckpointError(f"{place} ends at {note.end_then} after {records} records from {note.end} on")
        return journal
