"""One short text for all batches of a partition: equal texts, equal logs, and nothing has to be copied to see it.

The fingerprint of the offsets from `start` to before `end` is the SHA-256 of 24 bytes for each batch that holds one of
them, in the order of the log, all numbers big-endian:

    base offset i64, last offset i64, crc u32, leader epoch i32

The checksum covers everything else in a batch but its size. An entry of the old formats has one offset, which stands
in both places, and leader epoch -1. Where leader epochs are left out, as between clusters, each of them is -1.

It is written as `tide1:` (`tide1n:` without leader epochs) and the first 32 hexadecimal digits. How batches are spread
over segments, indexes and everything else beside the batches does not matter.
"""

import hashlib
from typing import NamedTuple

import numpy as np

from tidelog.errors import InvalidRequestError
from tidelog.fsck.batch_rows import BatchRows, HeaderSource, OnBytes, checksums_of, epochs_of, read_rows

__all__ = ["Fingerprint", "fingerprint"]

_ENTRY = np.dtype([("first", ">i8"), ("last", ">i8"), ("crc", ">u4"), ("epoch", ">i4")])
_DIGITS = 32


class Fingerprint(NamedTuple):
    """The fingerprint of a range of offsets, and what it was made of."""

    text: str
    start_offset: int
    end_offset: int
    batches: int

    def __str__(self) -> str:
        return self.text


def fingerprint(
    log: HeaderSource,
    start: int | None = None,
    end: int | None = None,
    *,
    epochs: bool = True,
    verify: bool = True,
    on_bytes: OnBytes = lambda count: None,
) -> Fingerprint:
    """The fingerprint of a log, or of a range of its offsets; unless `verify` is off every checksum is compared."""
    start = log.log_start_offset if start is None else start
    end = log.log_end_offset if end is None else end
    if not log.log_start_offset <= start <= end <= log.log_end_offset:
        raise InvalidRequestError(
            f"offsets {start} to {end} are not within the log, which has {log.log_start_offset} to {log.log_end_offset}"
        )
    digest, count = hashlib.sha256(), 0
    for batches in read_rows(log, start, end, verify=verify, on_bytes=on_bytes):
        digest.update(_entries(batches, epochs).tobytes())
        count += len(batches)
    return Fingerprint(f"tide1{'' if epochs else 'n'}:{digest.hexdigest()[:_DIGITS]}", start, end, count)


def _entries(batches: BatchRows, epochs: bool) -> "np.ndarray[tuple[int], np.dtype[np.void]]":
    entries = np.empty(len(batches), _ENTRY)
    entries["first"], entries["last"] = batches.first, batches.last
    entries["crc"] = checksums_of(batches)
    entries["epoch"] = epochs_of(batches) if epochs else -1
    return entries
