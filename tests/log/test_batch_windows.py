"""Windows over a stretch of log: kernels and the readable path give the same ones, whatever the bytes are."""

import random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviours import behaviour
from tests.log.segments_language import batch
from tests.property.strategies import message_sets, record_batches
from tidelog.errors import StorageError
from tidelog.log import batch_windows
from tidelog.log.batch_info import BatchInfo
from tidelog.log.batch_scan import scan_batches
from tidelog.log.batch_windows import BatchWindow, read_windows

NEVER, ALWAYS = 1 << 62, 0


class Bytes:
    """A file in memory."""

    path = "bytes"
    descriptor = None

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, position: int, size: int) -> bytes:
        return self._data[position : position + size]

    def read_into(self, position: int, target: memoryview) -> int:
        data = self.read(position, len(target))
        target[: len(data)] = data
        return len(data)

    def close(self) -> None:
        raise StorageError("nobody closes it")


class Seen(NamedTuple):
    """What one window says."""

    position: int
    end: int
    length: int
    batches: list[BatchInfo]
    one_by_one: list[BatchInfo]
    contents: list[bytes]
    problem: str | None


def seen(window: BatchWindow) -> Seen:
    one_by_one = [window.batch(index) for index in range(len(window))]
    return Seen(
        window.position,
        window.end,
        len(window),
        window.batches,
        one_by_one,
        [bytes(window.bytes_of(found)) for found in window.batches],
        None if window.problem is None else str(window.problem),
    )


def windows(data: bytes, kernel_from: int, *, window: int, verify: bool, start: int = 0) -> list[Seen]:
    """All windows of `data`, by one of the paths."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_windows, "_KERNEL_FROM", kernel_from)
        patch.setattr(batch_windows, "WINDOW_BYTES", window)
        return [seen(found) for found in read_windows(Bytes(data), start, len(data), verify=verify)]


window_sizes = st.sampled_from([64, 200, 1000, 1 << 20])


@st.composite
def damaged_logs(draw: st.DrawFn) -> bytes:
    """A few batches, all there or torn, right or with some bytes changed."""
    data = bytearray(b"".join(draw(st.lists(st.one_of(record_batches, record_batches, message_sets()), max_size=6))))
    if data and draw(st.booleans()):
        for _ in range(draw(st.integers(1, 3))):
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    if data and draw(st.booleans()):
        del data[draw(st.integers(0, len(data) - 1)) :]
    return bytes(data)


@given(damaged_logs(), window_sizes, st.booleans())
def test_kernels_and_readable_path_give_the_same_windows(data: bytes, window: int, verify: bool) -> None:
    readable = windows(data, NEVER, window=window, verify=verify)
    assert windows(data, ALWAYS, window=window, verify=verify) == readable
    for found in readable:
        assert found.batches == found.one_by_one
        assert found.length == len(found.batches)


@given(st.lists(record_batches, max_size=6), window_sizes)
def test_windows_together_are_the_log(batches: list[bytes], window: int) -> None:
    for kernel_from in (NEVER, ALWAYS):
        found = windows(b"".join(batches), kernel_from, window=window, verify=True)
        assert [content for each in found for content in each.contents] == batches
        assert all(each.problem is None for each in found)
        assert [batch for each in found for batch in each.batches] == list(
            scan_batches(Bytes(b"".join(batches)), 0, sum(map(len, batches)))
        )


@pytest.mark.parametrize("kernel_from", [NEVER, ALWAYS])
@pytest.mark.parametrize("window", [64, 100, 250, 1 << 20])
def test_windows_begin_where_they_are_told_and_go_on_where_the_last_one_ended(kernel_from: int, window: int) -> None:
    batches = [bytes(batch(offset, b"v" * (offset * 30))) for offset in range(8)]
    skipped = len(batches[0]) + len(batches[1])
    found = windows(b"".join(batches), kernel_from, window=window, verify=True, start=skipped)
    assert found[0].position == skipped
    assert [each.position for each in found[1:]] == [each.end for each in found[:-1]]
    assert [content for each in found for content in each.contents] == batches[2:]


@behaviour("SEG-023")
@pytest.mark.parametrize("kernel_from", [NEVER, ALWAYS])
@pytest.mark.parametrize("seed", range(10))
def test_a_wrong_checksum_ends_the_walk_before_its_batch(kernel_from: int, seed: int) -> None:
    rng = random.Random(seed)
    batches = [batch(offset, rng.randbytes(rng.randrange(1, 300))) for offset in range(20)]
    wrong = rng.randrange(20)
    batches[wrong][rng.randrange(21, len(batches[wrong]))] ^= 1 << rng.randrange(8)
    data = b"".join(batches)
    found = windows(data, kernel_from, window=500, verify=True)
    assert sum(each.length for each in found) == wrong
    assert found[-1].end == sum(map(len, batches[:wrong]))
    assert found[-1].problem is not None
    assert f"position {found[-1].end}" in found[-1].problem
    unchecked = windows(data, kernel_from, window=500, verify=False)
    assert sum(each.length for each in unchecked) == 20


@pytest.mark.parametrize("kernel_from", [NEVER, ALWAYS])
def test_a_torn_batch_at_the_end_is_no_problem_and_no_batch(kernel_from: int) -> None:
    whole = bytes(batch(0) + batch(1))
    for size in range(1, len(batch(2))):
        found = windows(whole + bytes(batch(2)[:size]), kernel_from, window=1 << 20, verify=True)
        assert [(each.end, each.length, each.problem) for each in found] == [(len(whole), 2, None)]
