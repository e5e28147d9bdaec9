"""Rows into a file, which has its name once it is complete."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from tidelog.errors import InvalidRequestError, StorageError
from tidelog.tables.formats import Format, open_writer

__all__ = ["Exported", "ensure_free", "export_table", "written_beside"]


class Exported(NamedTuple):
    """A file that was written."""

    path: str
    rows: int
    size: int


def export_table(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    path: str,
    format: Format,
    *,
    compression: str | None = None,
    force: bool = False,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> Exported:
    """Write rows into a file. `on_rows` is told how many are written so far."""
    rows = 0
    with written_beside(path, force=force) as sink:
        writer = open_writer(format, sink, schema, compression=compression)
        for batch in batches:
            writer.write(batch)
            rows += batch.num_rows
            on_rows(rows)
        writer.close()
        size = sink.tell()
    return Exported(path, rows, size)


@contextmanager
def written_beside(path: str, *, force: bool = False) -> Iterator[BinaryIO]:
    """A file that is written beside its place, synced, and then gets its name; if that fails it goes.

    A file that is there already is replaced with `force` only.
    """
    ensure_free(path, force=force)
    beside = f"{path}.{os.getpid()}.part"
    try:
        with open(beside, "xb") as sink:
            try:
                yield sink
                sink.flush()
                os.fsync(sink.fileno())
            except BaseException:
                os.unlink(beside)
                raise
        os.replace(beside, path)
    except OSError as error:
        raise StorageError(f"{error.filename or path}: {error.strerror or error}") from error


def ensure_free(path: str, *, force: bool = False) -> None:
    """Raise InvalidRequestError if there is something in the place of a file that must not be replaced."""
    if os.path.isdir(path):
        raise InvalidRequestError(f"{path} is a directory")
    if os.path.exists(path) and not force:
        raise InvalidRequestError(f"{path} is there already: --force replaces it")
