"""The formats of tables, and how the name of a file shows its format. Imports nothing heavy."""

import os
from typing import Literal, get_args

from tidelog.errors import InvalidRequestError

__all__ = ["FORMATS", "SUFFIXES", "Format", "ensure_uncompressed", "format_of"]

Format = Literal["parquet", "csv", "jsonl", "arrow"]
FORMATS: tuple[str, ...] = get_args(Format)
SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
}
_TOOLS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bzip2", ".xz": "xz", ".lz4": "lz4"}


def ensure_uncompressed(path: str) -> None:
    """Raise if the name of a file says that all of it is compressed, which no file here is.

    >>> ensure_uncompressed("t.csv.gz")
    Traceback (most recent call last):
    tidelog.errors.InvalidRequestError: t.csv.gz: files are neither compressed nor decompressed; pipe them through gzip
    """
    tool = _TOOLS.get(os.path.splitext(path)[1].lower())
    if tool is not None:
        raise InvalidRequestError(f"{path}: files are neither compressed nor decompressed; pipe them through {tool}")


def format_of(path: str) -> Format:
    """The format of a file, by its name.

    >>> format_of("orders.parquet"), format_of("/backup/orders-0.ndjson")
    ('parquet', 'jsonl')
    """
    ensure_uncompressed(path)
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in SUFFIXES:
        raise InvalidRequestError(f"{path}: its name does not show the format; name one of {', '.join(FORMATS)}")
    return SUFFIXES[suffix]
