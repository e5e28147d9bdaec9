"""Arrow to the batches of several partitions: rows are read once, each is written to the open batch of its partition.

    columns, and a number for each row -> one kernel call writes to all partitions -> what is full is handed out

What a partition gets are the bytes that a `ColumnEncoder` makes of its rows alone, had they come in one piece.
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

_BYTES_OF_ALL = 16 << 20
_BYTES_OF_ONE = 1 << 20
_LEAST_CUTS = 16


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
        self._places = np.zeros((0, Place.WORDS), np.int64)
        self._targets: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
        self._cuts: list[Int64Array] = []
        self._words = np.zeros(Input.WORDS, np.int64)
        self._words[Input.BATCH_SIZE] = batch_size
        self._words[Input.LEADER_EPOCH] = NO_LEADER_EPOCH
        self._words[Input.PRODUCER_ID] = NO_PRODUCER_ID
        self._words[Input.PRODUCER_EPOCH] = NO_PRODUCER_EPOCH
        self._words[Input.BASE_SEQUENCE] = -1
        self._words[Input.ATTRIBUTES] = BatchAttributes(codec).pack()

    def add_place(self) -> int:
        """Take on another partition; its number."""
        number = len(self._places)
        self._places = np.concatenate([self._places, np.zeros((1, Place.WORDS), np.int64)])
        room = min(_BYTES_OF_ONE, _BYTES_OF_ALL // (number + 1))
        self._targets.append(np.empty(0, np.uint8))
        self._cuts.append(np.empty((0, CUT_WORDS), np.int64))
        self._give_room(number, max(room, 2 * self._batch_size))
        return number

    def records(self, number: int) -> int:
        """How many records a partition has got, those of its open batch too."""
        return int(self._places[number, Place.FIRST_OFFSET] + self._places[number, Place.COUNT])

    def encode(self, rows: Inputs, numbers: Int64Array) -> Iterator[tuple[int, EncodedBatches]]:
        """Take in rows with the numbers of their partitions; what is full meanwhile, to be used before the next."""
        numbers = np.ascontiguousarray(numbers, np.int64)
        if len(numbers) != rows.rows:
            raise InvalidRequestError(f"{len(numbers)} numbers of partitions for {rows.rows} rows")
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(self._places):
            raise InvalidRequestError(f"partitions have the numbers 0 to {len(self._places) - 1}")
        words = self._words.copy()
        rows.fill(words)
        row = 0
        while True:
            row, stop = deal(words.ctypes.data, numbers.ctypes.data, self._places.ctypes.data, row)
            if stop == Stop.DONE:
                return
            if stop == Stop.TOO_LARGE:
                raise InvalidRequestError("a row with more than 2 GiB of key, value and headers fits no batch")
            yield from self._emptied(int(numbers[row]))

    def finish(self) -> Iterator[tuple[int, EncodedBatches]]:
        """The rest of every partition."""
        for number in range(len(self._places)):
            if self._places[number, Place.CUTS_MADE] == self._places[number, Place.MAX_CUTS]:
                yield from self._emptied(number)
            seal_open(self._words.ctypes.data, self._places[number].ctypes.data)
            if self._places[number, Place.CUTS_MADE]:
                yield from self._emptied(number)

    def _emptied(self, number: int) -> Iterator[tuple[int, EncodedBatches]]:
        """Hand out what is sealed of a partition; what is open goes to the start of its room, or gets more of it."""
        place = self._places[number]
        made, sealed = int(place[Place.CUTS_MADE]), int(place[Place.POSITION])
        target = self._targets[number]
        if made:
            cuts = self._cuts[number][:made].copy()
            yield number, self._compressor.compress(EncodedBatches(target[:sealed].data, cuts[:, 1], cuts[:, 2]))
            size = int(place[Place.SIZE])
            target[:size] = target[sealed : sealed + size]
            place[Place.POSITION] = place[Place.CUTS_MADE] = 0
        else:
            self._give_room(number, 2 * int(place[Place.CAPACITY]))

    def _give_room(self, number: int, capacity: int) -> None:
        place, before = self._places[number], self._targets[number]
        target = np.empty(capacity + SLACK, np.uint8)
        target[: int(place[Place.SIZE])] = before[: int(place[Place.SIZE])]
        cuts = np.empty((max(capacity // max(self._batch_size, BATCH_HEADER_SIZE), _LEAST_CUTS), CUT_WORDS), np.int64)
        self._targets[number], self._cuts[number] = target, cuts
        place[Place.TARGET], place[Place.CAPACITY] = target.ctypes.data, capacity
        place[Place.CUTS], place[Place.MAX_CUTS] = cuts.ctypes.data, len(cuts)
