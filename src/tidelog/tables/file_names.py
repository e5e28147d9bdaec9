"""The formats of tables, and how the name of a file shows its format. Imports nothing heavy."""

import os
from typing import Literal, get_args

from tidelog.errors import InvalidRequestError

__all__ = ["FORMATS", "SUFFIXES", "Format", "format_of"]

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


def format_of(path: str) -> Format:
    """The format of a file, by its name.

    >>> format_of("orders.parquet"), format_of("/backup/orders-0.ndjson")
    ('parquet', 'jsonl')
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in SUFFIXES:
        raise InvalidRequestError(f"{path}: its name does not show the format; name one of {', '.join(FORMATS)}")
    return SUFFIXES[suffix]
