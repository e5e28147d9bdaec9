"""The files of one attempt of a task, while it writes them.

Rows come as Spark sends them, some thousand at a time, and go into the open batches of their partitions; batches that
are full are written, about a megabyte at a time. What an attempt has written is on the disk
when `finish` returns; an attempt that fails takes its files away, one that is killed leaves them to be swept.
"""

import socket
import time
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from tidelog.columns import EncodedBatches
from tidelog.errors import InvalidRequestError, MessageTooLargeError, StorageError
from tidelog.log.files import FileSystem, join
from tidelog.log.names import TopicPartition
from tidelog.spark.dealing import Dealer, Dealt
from tidelog.spark.staged_pieces import STAGED_FILE, Piece, directory_for, job_of
from tidelog.spark.write_options import WriteOptions

__all__ = ["Staging", "stage_rows"]

Int64Array = np.ndarray[Any, np.dtype[np.int64]]

_NOWHERE = -1


def stage_rows(batches: Iterable[pa.RecordBatch], dealer: Dealer, staging: "Staging") -> tuple[Piece, ...]:
    """Write rows to the files of an attempt; what is staged."""
    try:
        for rows in batches:
            if rows.num_rows:
                for dealt in dealer.deal(_timed(rows)):
                    staging.append(dealt)
        return staging.finish()
    except BaseException:
        staging.discard()
        raise


def _timed(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with a time each: what has none gets that of now, as from a producer."""
    now_ms = time.time_ns() // 1_000_000
    place = rows.schema.get_field_index("timestamp")
    if place < 0:
        return rows.append_column("timestamp", pa.array(np.full(rows.num_rows, now_ms, np.int64)))
    times = rows.column(place)
    # Cut to milliseconds, towards the past, here for all rows and not for those of each partition.
    ticks = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
    if ticks.null_count:
        ticks = ticks.fill_null(now_ms * 1000)
    return rows.set_column(place, "timestamp", pa.array(ticks.to_numpy() // 1000))


class Staging:
    """What an attempt has staged so far."""

    def __init__(self, fs: FileSystem, options: WriteOptions, attempt: str) -> None:
        self._fs = fs
        self._options = options
        self._attempt = attempt
        config = options.config
        self._limits = {"max.message.bytes": config.max_message_bytes, "segment.bytes": config.segment_bytes}
        self._largest = min(self._limits.values())
        self._encoder = options.encoder()
        self._pieces: list[_OpenPiece] = []  # in the order of the encoder's numbers
        self._numbers: dict[str, Int64Array] = {}  # of the encoder, by topic and partition
        if fs.stat(options.root) is None:
            raise InvalidRequestError(
                f"{options.root} is not there on {socket.gethostname()}: "
                "it must be a directory that driver and executors share"
            )

    def append(self, dealt: Dealt) -> None:
        """Take in rows, behind those that the attempt has for their partitions."""
        for number, encoded in self._encoder.encode(dealt.rows, self._numbers_of(dealt.topic, dealt.numbers)):
            self._write(number, encoded)

    def _numbers_of(self, topic: str, partitions: Int64Array) -> Int64Array:
        """The encoder's numbers of partitions; those that are new get a file."""
        known = self._numbers.get(topic, np.empty(0, np.int64))
        most = int(partitions.max()) + 1
        if most > len(known):
            known = np.concatenate([known, np.full(most - len(known), _NOWHERE)])
        found: Int64Array = known[partitions]
        if (found == _NOWHERE).any():
            for partition in np.unique(partitions[found == _NOWHERE]).tolist():
                known[partition] = self._begin(TopicPartition(topic, partition))
            found = known[partitions]
        self._numbers[topic] = known
        return found

    def _begin(self, place: TopicPartition) -> int:
        directory = directory_for(place, self._name_for(place))
        self._fs.make_directory(join(self._options.root, directory))
        self._pieces.append(_OpenPiece(self._fs, self._options.root, place, directory))
        return self._encoder.add_place()

    def _write(self, number: int, encoded: EncodedBatches) -> None:
        self._ensure_small(encoded)
        self._pieces[number].append(encoded)

    def _name_for(self, place: TopicPartition) -> str:
        """The digits of a directory: the job's, and some that are the partition's alone.

        Of a long topic the directory has only the beginning, which another may share.
        """
        job = job_of(self._attempt)
        own = sha256(f"{self._attempt} {place}".encode()).hexdigest()
        return job + own[: len(self._attempt) - len(job)]

    def _ensure_small(self, encoded: EncodedBatches) -> None:
        largest = int(encoded.sizes.max(initial=0))
        if largest > self._largest:
            names = " and ".join(name for name, limit in self._limits.items() if largest > limit)
            raise MessageTooLargeError(
                f"a row makes a batch of {largest} bytes, the topic allows {self._largest}: "
                f"the option {names} allows more, and so must the topic"
            )

    def finish(self) -> tuple[Piece, ...]:
        """Bring everything to the disk."""
        for number, encoded in self._encoder.finish():
            self._write(number, encoded)
        host = socket.gethostname()
        pieces = tuple(piece.finish(self._encoder.records(number), host) for number, piece in enumerate(self._pieces))
        if pieces:
            self._fs.sync_directory(self._options.root)
        return pieces

    def discard(self) -> None:
        """Take everything away."""
        for piece in self._pieces:
            self._fs.remove_directory(piece.path)


class _OpenPiece:
    """The file of one partition. It is open only while it is written to: there may be thousands of them."""

    def __init__(self, fs: FileSystem, root: str, place: TopicPartition, directory: str) -> None:
        self.path = join(root, directory)
        self._fs = fs
        self._place = place
        self._directory = directory
        self._size = 0
        self._crc = 0

    def append(self, encoded: EncodedBatches) -> None:
        """Write batches behind the others."""
        file = self._fs.open_write(join(self.path, STAGED_FILE), create=not self._size)
        try:
            file.write_at(self._size, encoded.data)
        finally:
            file.close()
        self._size += len(encoded.data)
        self._crc = crc32c(encoded.data, self._crc)

    def finish(self, records: int, host: str) -> Piece:
        """Bring the file to the disk."""
        file = self._fs.open_write(join(self.path, STAGED_FILE), create=False)
        try:
            if file.size != self._size:
                raise StorageError(f"{file.path} has {file.size} bytes, but {self._size} were written to it")
            file.sync()
        finally:
            file.close()
        self._fs.sync_directory(self.path)
        topic, partition = self._place
        return Piece(topic, partition, self._directory, self._size, records, self._crc, host)
