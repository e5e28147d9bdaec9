"""The partition that Kafka's producers choose for a key."""

from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.columns.inputs import binary_words, cast_column
from tidelog.columns.soundness import ensure_sound
from tidelog.errors import InvalidRequestError
from tidelog.kernels.murmur2 import partitions_of

__all__ = ["partition_for_keys"]


def partition_for_keys(keys: pa.Array | pa.ChunkedArray, partitions: int) -> pa.Array | pa.ChunkedArray:
    """The partition of each key among `partitions`, by murmur2; null for a null key, which may go anywhere.

    >>> partition_for_keys(pa.array([b"a", b"b", None]), 12).to_pylist()
    [4, 8, None]
    """
    if not 0 < partitions < 2**31:
        raise InvalidRequestError(f"{partitions} partitions: there is at least one")
    if isinstance(keys, pa.ChunkedArray):
        return pa.chunked_array([partition_for_keys(chunk, partitions) for chunk in keys.chunks], pa.int32())
    ensure_sound(keys, "key")
    keys = cast_column(keys, pa.binary(), "key")
    target: np.ndarray[Any, np.dtype[np.int32]] = np.empty(len(keys), np.int32)
    offsets, data, _, validity, first_bit = binary_words(keys)
    nulls = partitions_of(offsets, data, validity, first_bit, len(keys), partitions, target.ctypes.data)
    return pa.array(target, mask=target < 0 if nulls else None)
