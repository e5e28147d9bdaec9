"""The kernel is loaded when there is volume, and not before."""

import subprocess
import sys

import pytest

from tidelog.errors import CorruptRecordError
from tidelog.kernels.validate import validate_batch
from tidelog.log.fact_finder import FactFinder, read_facts
from tidelog.records import NewRecord, build_batch

BATCH = build_batch([NewRecord(b"k", b"v", 70), NewRecord(None, b"v", 50)])
EVERY_TIME = {"earliest_ms": 0, "latest_ms": 2**63 - 1}


def test_the_kernel_takes_over_after_the_bytes_given() -> None:
    finder = FactFinder(readable_bytes=2 * len(BATCH))
    for _ in range(2):
        assert finder.find(BATCH, **EVERY_TIME) == (70, -1, 1, True)
        assert finder.find is not validate_batch
    assert finder.find(BATCH, **EVERY_TIME) == (70, -1, 1, True)
    assert finder.find is validate_batch
    assert finder.find(BATCH, earliest_ms=60, latest_ms=80) == (70, 1, 1, True)


@pytest.mark.parametrize("find", [read_facts, validate_batch])
def test_the_checksum_is_compared_unless_it_was_before(find: FactFinder) -> None:
    damaged = bytearray(BATCH)
    damaged[17] ^= 1
    with pytest.raises(CorruptRecordError, match="stored crc"):
        find(damaged, **EVERY_TIME)  # type: ignore[operator]
    assert find(damaged, **EVERY_TIME, verify=False) == (70, -1, 1, True)  # type: ignore[operator]


@pytest.mark.parametrize("find", [read_facts, validate_batch])
@pytest.mark.parametrize(("position", "value"), [(11, 1), (16, 3)])
def test_length_and_magic_must_fit_the_bytes(find: FactFinder, position: int, value: int) -> None:
    damaged = bytearray(BATCH)
    damaged[position] = value
    with pytest.raises(CorruptRecordError, match="expected"):
        find(damaged, **EVERY_TIME)  # type: ignore[operator]


def test_a_small_append_loads_no_compiler() -> None:
    script = """
import sys
from tidelog.log.batch_info import batch_info
from tidelog.log.config import LogConfig
from tidelog.log.origin import AppendOrigin
from tidelog.log.validator import validate_and_assign
from tidelog.records import NewRecord, build_batch
buffer = memoryview(build_batch([NewRecord(b"k", b"v", 70)]))
validate_and_assign(buffer, [batch_info(buffer)], config=LogConfig(), origin=AppendOrigin.CLIENT, first_offset=5,
                    now_ms=70, leader_epoch=0)
print(sorted({"numba", "numpy", "pyarrow", "tidelog.kernels"} & {*sys.modules}))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
