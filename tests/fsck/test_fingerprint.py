"""Fingerprints: the definition, written out a second time, and what they do and do not notice."""

import hashlib
import struct
from pathlib import Path

import pytest

from tests.fsck.roots import a_root, cut
from tests.golden.corpus import Partition, undamaged_partitions
from tests.log.segments_language import batch
from tidelog import view
from tidelog.errors import CorruptRecordError, InvalidRequestError
from tidelog.fsck.fingerprint import Fingerprint, fingerprint
from tidelog.records import RecordBatch, read_batches

TEN = [batch(offset, b"value", epoch=offset // 4) for offset in range(10)]


def log_in(path: Path) -> view.PartitionView:
    (log,) = view.open(str(path))
    return log


def a_log(path: Path, *batches: bytearray) -> view.PartitionView:
    return log_in(a_root(path, {"orders-0": batches}))


def by_definition(data: bytes, *, epochs: bool = True) -> str:
    digest = hashlib.sha256()
    for found in read_batches(data):
        if isinstance(found, RecordBatch):
            epoch = found.partition_leader_epoch if epochs else -1
            digest.update(struct.pack(">qqIi", found.base_offset, found.last_offset, found.crc, epoch))
        else:  # an entry of the old formats is stored under its last offset
            digest.update(struct.pack(">qqIi", found.last_offset, found.last_offset, found.crc, -1))
    return f"tide1{'' if epochs else 'n'}:{digest.hexdigest()[:32]}"


@pytest.mark.parametrize(
    "partition", undamaged_partitions("kafka-4.3/1-codecs", "kafka-4.3/3-rolls", "legacy"), ids=str
)
def test_it_is_the_hash_of_offsets_checksums_and_epochs(partition: Partition) -> None:
    log = log_in(partition.path)
    data = partition.read()
    if log.log_start_offset == log.segments[0].base_offset:
        assert str(fingerprint(log)) == by_definition(data)
        assert str(fingerprint(log, epochs=False)) == by_definition(data, epochs=False)


def test_it_tells_its_range_and_how_many_batches(tmp_path: Path) -> None:
    found = fingerprint(a_log(tmp_path / "a", *TEN))
    assert found == Fingerprint(by_definition(b"".join(TEN)), 0, 10, 10)


def test_of_two_logs_that_overlap_the_common_range_is_equal(tmp_path: Path) -> None:
    one, other = a_log(tmp_path / "a", *TEN), a_log(tmp_path / "b", *TEN[:7])
    assert str(fingerprint(one)) != str(fingerprint(other))
    assert fingerprint(one, 2, 7) == fingerprint(other, 2)


def test_a_range_counts_every_batch_that_holds_one_of_its_offsets(tmp_path: Path) -> None:
    log = a_log(tmp_path / "a", batch(0, b"a", b"b"), batch(2, b"c", b"d"), batch(4, b"e"))
    assert fingerprint(log, 1, 3).batches == 2
    assert fingerprint(log, 2, 2).batches == 0


@pytest.mark.parametrize("partition", undamaged_partitions("legacy"), ids=str)
def test_an_entry_of_the_old_formats_belongs_to_the_offset_it_is_stored_under(partition: Partition) -> None:
    log = log_in(partition.path)
    found = list(read_batches(partition.read()))
    stored = [batch.base_offset if isinstance(batch, RecordBatch) else batch.last_offset for batch in found]
    for end in stored[:8]:  # the first that is left out
        assert fingerprint(log, None, end).batches == sum(offset < end for offset in stored)


def test_segments_do_not_matter_and_everything_else_does(tmp_path: Path) -> None:
    made = str(fingerprint(a_log(tmp_path / "a", *TEN)))
    root = a_root(tmp_path / "b", {"orders-0": TEN})
    cut(root / "orders-0", 5)
    assert str(fingerprint(log_in(root))) == made
    others = {
        "epoch": [*TEN[:9], batch(9, b"value", epoch=3)],
        "value": [*TEN[:9], batch(9, b"valuf", epoch=2)],
        "offset": [*TEN[:9], batch(10, b"value", epoch=2, timestamp_ms=90)],
        "missing": TEN[1:],
        "bounds": [*TEN[:8], batch(8, b"value", b"value", epoch=2)],
    }
    found = {name: str(fingerprint(a_log(tmp_path / name, *batches))) for name, batches in others.items()}
    assert len({made, *found.values()}) == 6
    alike = fingerprint(a_log(tmp_path / "c", *others["epoch"]), epochs=False)
    assert alike == fingerprint(log_in(root), epochs=False)


def test_a_range_that_the_log_has_not_is_refused(tmp_path: Path) -> None:
    log = a_log(tmp_path / "a", *TEN)
    for start, end in ((0, 11), (5, 4)):
        with pytest.raises(InvalidRequestError, match="0 to 10"):
            fingerprint(log, start, end)


def test_damage_is_found_unless_checksums_are_believed(tmp_path: Path) -> None:
    damaged = bytearray(TEN[3])
    damaged[-1] ^= 1
    log = a_log(tmp_path / "a", *TEN[:3], damaged, *TEN[4:])
    assert str(fingerprint(log, verify=False)) == by_definition(b"".join(TEN))
    with pytest.raises(CorruptRecordError):
        fingerprint(log)
