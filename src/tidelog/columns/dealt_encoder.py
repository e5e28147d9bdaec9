"""Arrow to the batches of several partitions: rows are read once, each is written to the open batch of its partition.

    columns, and a number for each row -> one kernel call writes to all partitions -> what is full is handed out

What a partition gets are the bytes that a `ColumnEncoder` makes of its rows alone, had they come in one piece. Where
all partitions together would take more room than they may, their open batches are closed, and handed out, too.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tidelog.columns.compressor import BatchCompressor
from tidelog.columns.encoder import EncodedBatches
from tidelog.columns.inputs import Inputs
from tidelog.errors import InvalidRequestError
from tidelog.kernels.deal import Place, Stop, deal, seal_open
from tidelog.kernels.encode import CUT_WORDS, Input
from tidelog.kernels.memory import SLACK
from tidelog.records.batch import (
    BATCH_HEADER_SIZE,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchAttributes,
)
from tidelog.records.builder import DEFAULT_BATCH_SIZE
from tidelog.records.compression import Codec

__all__ = ["DealtEncoder"]

Int64Array = np.ndarray[Any, np.dtype[np.int64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_BYTES_OF_ALL = 64 << 20  # room that all partitions may take
_BYTES_OF_ONE = 1 << 20  # that is handed out at once, if it is not one batch
_FIRST_BYTES = 8 << 10
_LEAST_CUTS = 16
_NO_BYTES = np.empty(0, np.uint8)
_NO_CUTS = np.empty((0, CUT_WORDS), np.int64)


class DealtEncoder:
    """Encodes rows for the partitions that it was told of, offsets of each from 0 on. For one thread at a time."""

    def __init__(
        self, *, batch_size: int = DEFAULT_BATCH_SIZE, codec: Codec | str = Codec.NONE, level: int | None = None
    ) -> None:
        codec = Codec.from_name(codec) if isinstance(codec, str) else Codec.from_id(codec)
        if not 0 <= batch_size < 1 << 31:
            raise InvalidRequestError(f"batch_size {batch_size}: it lies between 0 and 2**31 - 1")
        self._compressor = BatchCompressor(codec, level)
        self._batch_size = batch_size
        self._places = np.zeros((0, Place.WORDS), np.int64)  # more of them than there are partitions
        self._targets: list[Bytes] = []  # of each partition
        self._cuts: list[Int64Array] = []
        self._room = 0  # of all targets
        self._spare: Bytes | None = None  # a target that nobody reads any more
        self._is_busy = False  # rows are not yet taken in to their end
        self._words = np.zeros(Input.WORDS, np.int64)
        self._words[Input.BATCH_SIZE] = batch_size
        self._words[Input.LEADER_EPOCH] = NO_LEADER_EPOCH
        self._words[Input.PRODUCER_ID] = NO_PRODUCER_ID
        self._words[Input.PRODUCER_EPOCH] = NO_PRODUCER_EPOCH
        self._words[Input.BASE_SEQUENCE] = -1
        self._words[Input.ATTRIBUTES] = BatchAttributes(codec).pack()

    def add_place(self) -> int:
        """Take on another partition; its number."""
        self._ensure_idle()
        number = len(self._targets)
        if number == len(self._places):
            self._places = np.concatenate([self._places, np.zeros((max(number, 16), Place.WORDS), np.int64)])
        self._targets.append(_NO_BYTES)
        self._cuts.append(_NO_CUTS)
        return number

    def records(self, number: int) -> int:
        """How many records a partition has got, those of its open batch too."""
        return int(self._places[number, Place.FIRST_OFFSET] + self._places[number, Place.COUNT])

    def encode(self, rows: Inputs, numbers: Int64Array) -> Iterator[tuple[int, EncodedBatches]]:
        """Take in rows with the numbers of their partitions; what is full meanwhile, to be used before the next.

        Rows are taken in while this is iterated over. Whoever does not come to its end cannot use the encoder again.
        """
        self._ensure_idle()
        numbers = np.ascontiguousarray(numbers, np.int64)
        if len(numbers) != rows.rows:
            raise InvalidRequestError(f"{len(numbers)} numbers of partitions for {rows.rows} rows")
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(self._targets):
            raise InvalidRequestError(f"partitions have the numbers 0 to {len(self._targets) - 1}")
        words = self._words.copy()
        rows.fill(words)
        self._is_busy = True
        row = 0
        while True:
            row, stop = deal(words.ctypes.data, numbers.ctypes.data, self._places.ctypes.data, row)
            if stop == Stop.DONE:
                break
            if stop == Stop.TOO_LARGE:
                raise InvalidRequestError("a row with more than 2 GiB of key, value and headers fits no batch")
            yield from self._with_room(int(numbers[row]))
        self._is_busy = False

    def finish(self) -> Iterator[tuple[int, EncodedBatches]]:
        """The rest of every partition."""
        self._ensure_idle()
        self._is_busy = True
        yield from self._all()
        self._is_busy = False

    def _ensure_idle(self) -> None:
        if self._is_busy:
            raise InvalidRequestError("the rows before were not taken in to their end: this encoder cannot go on")

    def _with_room(self, number: int) -> Iterator[tuple[int, EncodedBatches]]:
        """Make room for another row of a partition: more of it, or what is there is handed out."""
        capacity = int(self._places[number, Place.CAPACITY])
        if capacity >= _BYTES_OF_ONE and self._places[number, Place.CUTS_MADE]:
            yield from self._sealed(number, min(capacity, max(_BYTES_OF_ONE, 2 * self._batch_size)))
        else:
            if self._room + capacity > _BYTES_OF_ALL:
                yield from self._all()
                capacity = int(self._places[number, Place.CAPACITY])  # what was handed out needs none any more
            self._move(number, max(2 * capacity, _FIRST_BYTES))

    def _all(self) -> Iterator[tuple[int, EncodedBatches]]:
        """Close the open batches and hand out everything; no partition that had something keeps any room."""
        for number in range(len(self._targets)):
            place = self._places[number]
            if place[Place.SIZE]:
                if place[Place.CUTS_MADE] == place[Place.MAX_CUTS]:
                    yield from self._sealed(number, int(place[Place.CAPACITY]))
                seal_open(self._words.ctypes.data, self._places[number].ctypes.data)
            if place[Place.CUTS_MADE]:
                yield from self._sealed(number, 0)

    def _sealed(self, number: int, capacity: int) -> Iterator[tuple[int, EncodedBatches]]:
        """Hand out what is sealed of a partition. What is open goes to another target, of `capacity` or more."""
        place, target = self._places[number], self._targets[number]
        made, sealed = int(place[Place.CUTS_MADE]), int(place[Place.POSITION])
        cuts = self._cuts[number][:made].copy()
        self._move(number, max(capacity, int(place[Place.SIZE])), without_sealed=True)
        yield number, self._compressor.compress(EncodedBatches(target[:sealed].data, cuts[:, 1], cuts[:, 2]))
        self._spare = target if len(target) == _BYTES_OF_ONE + SLACK else None

    def _move(self, number: int, capacity: int, *, without_sealed: bool = False) -> None:
        """Give a partition another target, and take along what it has."""
        place, before, cuts_before = self._places[number], self._targets[number], self._cuts[number]
        self._room += capacity - int(place[Place.CAPACITY])
        end = int(place[Place.POSITION] + place[Place.SIZE])
        if without_sealed:
            before, cuts_before = before[int(place[Place.POSITION]) : end], _NO_CUTS
            place[Place.POSITION] = place[Place.CUTS_MADE] = 0
        else:
            before, cuts_before = before[:end], cuts_before[: int(place[Place.CUTS_MADE])]
        target = self._new_target(capacity)
        target[: len(before)] = before
        most = max(capacity // max(self._batch_size, BATCH_HEADER_SIZE), _LEAST_CUTS) if capacity else 0
        cuts = np.empty((most, CUT_WORDS), np.int64)
        cuts[: len(cuts_before)] = cuts_before
        self._targets[number], self._cuts[number] = target, cuts
        place[Place.TARGET], place[Place.CAPACITY] = target.ctypes.data, capacity
        place[Place.CUTS], place[Place.MAX_CUTS] = cuts.ctypes.data, most

    def _new_target(self, capacity: int) -> Bytes:
        spare = self._spare
        if not capacity:
            return _NO_BYTES
        if spare is None or len(spare) != capacity + SLACK:
            return np.empty(capacity + SLACK, np.uint8)
        self._spare = None
        return spare
