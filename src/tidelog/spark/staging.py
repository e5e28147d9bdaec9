"""The files of one attempt of a task, while it writes them.

Rows come as Spark sends them, some thousand at a time. They are collected until there are some megabytes, and then
dealt out to their partitions, so that each gets enough for whole batches. What an attempt has written is on the disk
when `finish` returns; an attempt that fails takes its files away, one that is killed leaves them to be swept.
"""

import socket
import time
from collections.abc import Callable, Iterable
from hashlib import sha256

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from tidelog.columns import ColumnEncoder, EncodedBatches
from tidelog.errors import InvalidRequestError, MessageTooLargeError, StorageError
from tidelog.log.files import FileSystem, join
from tidelog.log.names import TopicPartition
from tidelog.spark.dealing import Dealer, Share
from tidelog.spark.staged_pieces import STAGED_FILE, Piece, directory_for, job_of
from tidelog.spark.write_options import WriteOptions

__all__ = ["Staging", "stage_rows"]

# Rows are collected so that each partition gets enough for whole batches, and no call is made for a few rows.
_COLLECTED_BYTES = 8 << 20
_COLLECTED_FOR_MANY = 64 << 20
_BYTES_OF_ONE = 256 << 10  # of many partitions


def stage_rows(batches: Iterable[pa.RecordBatch], dealer: Dealer, staging: "Staging") -> tuple[Piece, ...]:
    """Write rows to the files of an attempt; what is staged."""
    try:
        for rows in _collected(batches, _bytes_to_collect(dealer.places)):
            for share in dealer.deal(_timed(rows)):
                staging.append(share)
        return staging.finish()
    except BaseException:
        staging.discard()
        raise


def _bytes_to_collect(places: int) -> int:
    """How much is collected before it is dealt out to a number of partitions; for one there is nothing to deal."""
    return 0 if places == 1 else min(max(_COLLECTED_BYTES, places * _BYTES_OF_ONE), _COLLECTED_FOR_MANY)


def _collected(batches: Iterable[pa.RecordBatch], enough: int) -> Iterable[pa.RecordBatch]:
    """The same rows in larger batches."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        size += batch.nbytes
        if size >= enough:
            yield _joined(waiting)
            waiting, size = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


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
        self._open: dict[TopicPartition, _OpenPiece] = {}
        if fs.stat(options.root) is None:
            raise InvalidRequestError(
                f"{options.root} is not there on {socket.gethostname()}: "
                "it must be a directory that driver and executors share"
            )

    def append(self, share: Share) -> None:
        """Write rows behind those that the attempt has for the partition."""
        place = share.place
        piece = self._open.get(place)
        if piece is None:
            directory = directory_for(place, self._name_for(place))
            self._fs.make_directory(join(self._options.root, directory))
            piece = self._open[place] = _OpenPiece(self._fs, self._options.root, directory, self._options.encoder())
        piece.append(share, self._ensure_small)

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
        host = socket.gethostname()
        pieces = tuple(piece.finish(place, host) for place, piece in self._open.items())
        if pieces:
            self._fs.sync_directory(self._options.root)
        return pieces

    def discard(self) -> None:
        """Take everything away."""
        for piece in self._open.values():
            self._fs.remove_directory(piece.path)


class _OpenPiece:
    """The file of one partition. It is open only while it is written to: there may be thousands of them."""

    def __init__(self, fs: FileSystem, root: str, directory: str, encoder: ColumnEncoder) -> None:
        self.path = join(root, directory)
        self._fs = fs
        self._directory = directory
        self._encoder = encoder
        self._size = 0
        self._crc = 0

    def append(self, share: Share, check: Callable[[EncodedBatches], None]) -> None:
        file = self._fs.open_write(join(self.path, STAGED_FILE), create=not self._size)
        try:
            for encoded in self._encoder.encode_some(share.rows, share.order):
                check(encoded)
                file.write_at(self._size, encoded.data)
                self._size += len(encoded.data)
                self._crc = crc32c(encoded.data, self._crc)
        finally:
            file.close()

    def finish(self, place: TopicPartition, host: str) -> Piece:
        file = self._fs.open_write(join(self.path, STAGED_FILE), create=False)
        try:
            if file.size != self._size:
                raise StorageError(f"{file.path} has {file.size} bytes, but {self._size} were written to it")
            file.sync()
        finally:
            file.close()
        self._fs.sync_directory(self.path)
        records = self._encoder.next_offset
        assert records is not None
        return Piece(place.topic, place.partition, self._directory, self._size, records, self._crc, host)
