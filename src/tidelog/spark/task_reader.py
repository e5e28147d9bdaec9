"""Reading a task, in a Python worker of an executor."""

import logging
import socket
from collections.abc import Iterator

import pyarrow as pa

from tidelog.errors import CorruptionError, StorageError
from tidelog.log.files import parent_of
from tidelog.spark.planning import Task
from tidelog.spark.read_options import ReadOptions
from tidelog.spark.row_schema import CORRUPTION, RowSchema
from tidelog.spark.worker import prepare_worker
from tidelog.view.files import ReadOnlyFiles, ViewFiles
from tidelog.view.pieces import Piece, read_piece

__all__ = ["read_task"]

_MAX_ROWS = 32_000  # of a batch: with more, or with more bytes, the JVM takes longer for each
_MAX_BYTES = 8 << 20

_log = logging.getLogger("tidelog.spark")


def read_task(task: Task, options: ReadOptions, schema: RowSchema) -> Iterator[pa.RecordBatch]:
    """The rows of a task, as Spark wants them."""
    prepare_worker()
    for piece in task.pieces:
        notices: list[str] = []
        partition = f"{piece.topic}-{piece.partition}"
        for batch in _read(piece, options, schema, notices):
            yield schema.rows(batch, partition)
        for notice in notices:
            _log.warning("%s", notice)
        if notices and CORRUPTION in schema.names:
            yield schema.corruption_rows(piece.topic, piece.partition, notices)


def _read(piece: Piece, options: ReadOptions, schema: RowSchema, notices: list[str]) -> Iterator[pa.RecordBatch]:
    batches = read_piece(
        piece,
        schema.stored,
        files=_files(piece, options),
        verify=options.verify,
        timestamp_unit="us",
        on_corruption="skip" if options.skip_damage else "raise",
        max_rows=_MAX_ROWS,
        max_bytes=_MAX_BYTES,
        notices=notices,
        on_loss=options.report_loss,
    )
    try:
        yield from batches
    except CorruptionError as error:
        raise type(error)(
            f"{error}. Check it with: tidelog fsck --deep {parent_of(piece.path)}; onCorruption=skip leaves it out"
        ) from None
    except StorageError as error:
        raise type(error)(f"{error} (read on {socket.gethostname()})") from error


def _files(piece: Piece, options: ReadOptions) -> ViewFiles:
    if "://" not in piece.path:
        return ReadOnlyFiles()
    return _remote_files(piece.path.partition("://")[0], piece.path, options.places.storage)


_REMOTE: dict[tuple[str, object], ViewFiles] = {}


def _remote_files(scheme: str, path: str, storage: tuple[tuple[str, object], ...]) -> ViewFiles:
    """The file system of an address, made once in a worker: its connections are kept."""
    from tidelog.view.remote_files import files_at

    known = scheme, storage
    if known not in _REMOTE:
        _REMOTE[known], _ = files_at(path, dict(storage) or None, None)
    return _REMOTE[known]
