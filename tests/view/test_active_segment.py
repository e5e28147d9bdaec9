"""Where the active segment ends: a torn or failing last batch is the end, damage before sound batches is damage."""

import shutil
import struct
from pathlib import Path

import pytest

import tidelog
from tests.golden.corpus import case
from tests.view.scans import write_log
from tidelog.errors import CorruptRecordError
from tidelog.records import NewRecord

TIME = 1_700_000_000_000
LOG = "00000000000000000000.log"


def a_root(home: Path, batches: int = 20, records: int = 16, size: int = 1000) -> Path:
    """One segment as Kafka writes it: an index entry every 4096 bytes, so each large batch has its own."""
    puts = [
        ("put", 0, [NewRecord(b"k", b"v" * size, timestamp_ms=TIME + records * batch + n) for n in range(records)])
        for batch in range(batches)
    ]
    write_log(home, puts, name="orders-0", index_interval_bytes=4096)
    return home


def positions(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        found.append(at)
        at += 12 + int(struct.unpack_from(">i", data, at + 8)[0])
    return found


def flip(root: Path, batch: int, behind: int = 100) -> None:
    path = root / "orders-0" / LOG
    data = bytearray(path.read_bytes())
    data[positions(data)[batch] + behind] ^= 1
    path.write_bytes(data)


def set_length(root: Path, batch: int, length: int) -> None:
    path = root / "orders-0" / LOG
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, positions(data)[batch] + 8, length)
    path.write_bytes(data)


@pytest.mark.parametrize("failing", [1, 3])
def test_failing_batches_at_the_very_end_are_the_end(tmp_path: Path, failing: int) -> None:
    root = a_root(tmp_path)
    for batch in range(20 - failing, 20):
        flip(root, batch)
    orders = tidelog.open(root)["orders", 0]
    assert orders.log_end_offset == 16 * (20 - failing)
    assert tidelog.open(root).scan("orders").to_table().num_rows == 16 * (20 - failing)
    assert sum(1 for _ in orders.read()) == 16 * (20 - failing)
    assert any("position" in notice for notice in orders.notices)


def test_a_last_batch_whose_pages_were_lost_is_the_end(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    path = root / "orders-0" / LOG
    data = bytearray(path.read_bytes())
    start = positions(data)[-1]
    data[start + 61 :] = bytes(len(data) - start - 61)
    path.write_bytes(data)
    assert tidelog.open(root)["orders", 0].log_end_offset == 16 * 19


@pytest.mark.parametrize("length", [5, 2**30, -1])
@pytest.mark.parametrize("has_index", [True, False])
def test_a_length_that_cannot_be_before_sound_batches_is_damage(tmp_path: Path, length: int, has_index: bool) -> None:
    root = a_root(tmp_path, batches=40, records=5, size=10)
    set_length(root, 1, length)
    if not has_index:
        (root / "orders-0" / LOG.replace(".log", ".index")).unlink()
    logs = tidelog.open(root)
    with pytest.raises(CorruptRecordError, match="fsck"):
        logs.scan("orders").to_table()
    with pytest.raises(CorruptRecordError, match="fsck"):
        list(logs["orders", 0].read())


def test_a_wrong_checksum_before_sound_batches_is_damage(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    flip(root, 17)
    with pytest.raises(CorruptRecordError, match="fsck"):
        tidelog.open(root).scan("orders").to_table()


def test_a_high_watermark_behind_the_end_is_told(tmp_path: Path) -> None:
    root = a_root(tmp_path)
    (root / "replication-offset-checkpoint").write_text("0\n1\norders 0 5000\n")
    orders = tidelog.open(root)["orders", 0]
    assert orders.high_watermark == 320
    assert any("5000" in notice for notice in orders.notices)


# -- scans from a time on ------------------------------------------------------------------------------------------


def rows_from(root: Path, topic: str, time_ms: int) -> list[int]:
    table = tidelog.open(root).scan(topic, columns=["offset"], from_time=time_ms).to_table()
    return list(table["offset"].to_pylist())


def test_a_segment_without_timestamps_does_not_hide_what_follows(tmp_path: Path) -> None:
    steps = [("old", 0, 0, [NewRecord(b"k", b"old", timestamp_ms=-1)]), ("roll",)]
    steps += [("put", 0, [NewRecord(b"k", b"new", timestamp_ms=TIME + number)]) for number in range(5)]
    write_log(tmp_path, steps, name="orders-0")
    assert rows_from(tmp_path, "orders", TIME) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["clean/before/c-start-mid-0", "unclean/before/u-start-mid-0"])
def test_a_segment_below_the_log_start_does_not_hide_what_follows(tmp_path: Path, name: str) -> None:
    golden = case("kafka-4.3/6-recovery") / name
    shutil.copytree(golden, tmp_path / golden.name)
    for checkpoint in golden.parent.glob("*-checkpoint"):
        shutil.copy(checkpoint, tmp_path / checkpoint.name)
    topic = golden.name.removesuffix("-0")
    records = list(tidelog.open(tmp_path)[topic, 0].read())
    for time_ms in sorted({record.timestamp_ms for record in records}):
        wanted = [record.offset for record in records if record.timestamp_ms >= time_ms]
        assert rows_from(tmp_path, topic, time_ms) == wanted
