"""Lines of text as tables: what the kernel of `log_lines` reads to know what it shall write.

A line is a list of pieces: a literal, then perhaps a number, a name, or text of the record, and under which conditions
it is there at all. The kernel knows no words; whoever wants lines says which, so the variants of many releases are
tables and not code.

Nothing here needs a compiler or numpy: where the kernel's machine code is at hand, neither is loaded.
"""

from array import array
from collections.abc import Sequence
from ctypes import addressof, create_string_buffer
from enum import IntEnum, IntFlag, auto
from typing import NamedTuple

__all__ = [
    "FIELDS",
    "FIRST_CODEC",
    "FIRST_TIMESTAMP_TYPE",
    "NAME_SIZE",
    "PIECE_WORDS",
    "ROOM_BEHIND",
    "ROOM_OF_DECIMAL",
    "SLOTS",
    "Field",
    "Kind",
    "Met",
    "Names",
    "Piece",
    "Slot",
    "Stop",
    "Template",
]

ROOM_OF_DECIMAL = 32  # a sign, nineteen digits, and what whole words write behind them; enough for a name too
ROOM_BEHIND = 96  # what the kernel's wide copies may touch behind anything: SLACK of `memory`, which loads a compiler

PIECE_WORDS = 5  # literal, its size, kind, field, conditions
NAME_SIZE = 64  # a row of the table of names: the size, at most 24 letters, room for a wide copy

# Names, by number: the booleans as they are, the kinds of timestamp, the codecs.
FIRST_TIMESTAMP_TYPE = 2
FIRST_CODEC = 4


class Kind(IntEnum):
    """What follows the literal of a piece."""

    NOTHING = 0
    NUMBER = 1  # a field
    NAME = 2  # the name that a field numbers
    KEY = 3
    VALUE = 4
    HEADER_NAMES = 5  # with commas between them


class Met(IntFlag):
    """Conditions of a piece: it is left out unless all that it asks for are met."""

    KEY = 1
    NO_KEY = 2
    VALUE = 4
    DELETE_HORIZON = 8
    NO_DELETE_HORIZON = 16


class Field(IntEnum):
    """The values that a line may print: those of the batch, then those of the record."""

    BASE_OFFSET = 0
    LAST_OFFSET = auto()
    COUNT = auto()
    BASE_SEQUENCE = auto()
    LAST_SEQUENCE = auto()
    PRODUCER_ID = auto()
    PRODUCER_EPOCH = auto()
    PARTITION_LEADER_EPOCH = auto()
    IS_TRANSACTIONAL = auto()  # a name
    IS_CONTROL = auto()  # a name
    BASE_TIMESTAMP = auto()
    MAX_TIMESTAMP = auto()
    TIMESTAMP_TYPE = auto()  # a name
    POSITION = auto()
    SIZE = auto()
    CODEC = auto()  # a name
    CRC = auto()
    IS_VALID = auto()  # a name
    OFFSET = auto()
    TIMESTAMP = auto()
    KEY_SIZE = auto()
    VALUE_SIZE = auto()
    SEQUENCE = auto()
    KEY_ADDRESS = auto()  # from here on not for printing
    VALUE_ADDRESS = auto()
    HEADERS_ADDRESS = auto()
    HEADERS_COUNT = auto()
    RECORD_END = auto()


FIELDS = len(Field)


class Stop(IntEnum):
    """Why the kernel came back."""

    END = 0  # no whole batch is left
    FULL = 1  # there is no room for the lines of the next batch, or for its gaps
    COMPRESSED = 2  # the records of the next batch are, and its body is not in the table
    IN_DOUBT = 3  # the next batch is one for the readable path


class Slot(IntEnum):
    """The int64 words through which the kernel is given what it needs and gives back what it did."""

    DATA = 0  # address of the log's bytes, with SLACK behind them
    DATA_SIZE = auto()
    BASE_POSITION = auto()  # of these bytes in their file
    WITH_RECORDS = auto()
    CODECS = auto()  # how many are known
    BODIES = auto()  # table of the bodies of the first batches, opened, or 0
    BODIES_COUNT = auto()
    BATCH_LINE = auto()
    BATCH_PIECES = auto()
    BATCH_ROOM = auto()
    RECORD_LINE = auto()
    RECORD_PIECES = auto()
    RECORD_ROOM = auto()
    NAMES = auto()
    FIELDS = auto()
    TEXT = auto()  # where lines go
    TEXT_SIZE = auto()  # without the SLACK behind
    GAPS = auto()  # pairs of offsets: a record, and the next one, where they do not follow each other
    GAPS_SIZE = auto()  # in pairs
    DONE = auto()  # from here on results: how many bytes of log were written as lines
    WRITTEN = auto()  # bytes of text
    GAPS_FOUND = auto()
    RECORDS = auto()
    FIRST_OFFSET = auto()  # of the first record
    LAST_OFFSET = auto()
    WANTED_ROOM = auto()  # bytes and gaps of the batch for which there was no room
    WANTED_GAPS = auto()


SLOTS = len(Slot)


class Piece(NamedTuple):
    """A part of a line."""

    literal: str
    kind: Kind = Kind.NOTHING
    field: Field = Field.BASE_OFFSET
    conditions: Met = Met(0)


class Template:
    """A line, in the shape that the kernel reads."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        literals = [piece.literal.encode() for piece in pieces]
        self._letters = create_string_buffer(b"".join(literals), sum(map(len, literals)) + ROOM_BEHIND)
        self._table = array("q")
        start = addressof(self._letters)
        for piece, literal in zip(pieces, literals, strict=True):
            self._table.extend((start, len(literal), piece.kind, piece.field, piece.conditions))
            start += len(literal)
        self.address, _ = self._table.buffer_info()
        self.pieces = len(pieces)
        self.room = len(self._letters) + len(pieces) * ROOM_OF_DECIMAL  # for everything but the texts of a record


class Names:
    """The words for booleans, kinds of timestamp and codecs, in the order of their numbers."""

    def __init__(self, codecs: Sequence[str]) -> None:
        names = ("false", "true", "CreateTime", "LogAppendTime", *codecs)
        rows = b"".join(len(name).to_bytes(8, "little") + name.encode().ljust(NAME_SIZE - 8, b"\0") for name in names)
        self._rows = create_string_buffer(rows)
        self.address = addressof(self._rows)
        self.codecs = len(codecs)
