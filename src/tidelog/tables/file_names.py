"""The formats of tables, and the names of files that tell them. Nothing heavy is imported for that."""

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
    """The format that the name of a file tells.

    >>> format_of("orders.parquet"), format_of("/backup/orders-0.ndjson")
    ('parquet', 'jsonl')
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in SUFFIXES:
        raise InvalidRequestError(f"{path}: its name does not tell the format; name one of {', '.join(FORMATS)}")
    return SUFFIXES[suffix]
