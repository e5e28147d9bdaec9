"""Log directories made of batches, to be compared and to be damaged.

root = a_root(tmp_path / "a", {"orders-0": [batch(0, b"x"), batch(1, b"y")]})
cut(root / "orders-0", 1)                      the batches from offset 1 on lie in a segment of their own
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tidelog.log.checkpoints import EpochEntry, LeaderEpochCheckpoint, OffsetCheckpoint
from tidelog.log.local_files import LocalFileSystem
from tidelog.log.names import (
    CLUSTER_METADATA_TOPIC,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    TopicPartition,
    file_name,
)
from tidelog.records import NewRecord, RecordBatch, build_batch, read_batches

FS = LocalFileSystem()


def a_root(
    path: Path, logs: Mapping[str, Sequence[bytes | bytearray]], log_starts: Mapping[TopicPartition, int] | None = None
) -> Path:
    """A root with these partitions, each one segment from offset 0 on, and what the batches say of leader epochs."""
    path.mkdir(parents=True)
    (path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    for name, batches in logs.items():
        a_partition(path / name, batches)
    if log_starts:
        OffsetCheckpoint(FS, f"{path}/{LOG_START_CHECKPOINT}").write(log_starts)
    return path


def a_partition(directory: Path, batches: Sequence[bytes | bytearray], base_offset: int = 0) -> None:
    directory.mkdir()
    (directory / file_name(base_offset, LOG_SUFFIX)).write_bytes(b"".join(batches))
    epochs: dict[int, int] = {}
    for batch in read_batches(b"".join(batches)):
        if isinstance(batch, RecordBatch):
            epochs.setdefault(batch.partition_leader_epoch, batch.base_offset)
    entries = [EpochEntry(epoch, start) for epoch, start in sorted(epochs.items()) if epoch >= 0]
    LeaderEpochCheckpoint(FS, f"{directory}/{LEADER_EPOCH_CHECKPOINT}").write(entries)


def cut(directory: Path, offset: int) -> None:
    """Begin a new segment with the batch at an offset."""
    *_, log = sorted(directory.glob(f"*{LOG_SUFFIX}"))
    data = log.read_bytes()
    position = 0
    for batch in read_batches(data):
        if batch.base_offset == offset:
            break
        position += batch.size_in_bytes
    log.write_bytes(data[:position])
    (directory / file_name(offset, LOG_SUFFIX)).write_bytes(data[position:])


def metadata_log(root: Path, topic: str, name: str, value: str) -> None:
    """Put a metadata log into a root, with one config of a topic."""
    texts = b"".join(bytes([len(text) + 1]) + text.encode() for text in (topic, name, value))
    record = b"\x01\x04\x00" + b"\x02" + texts + b"\x00"  # frame 1, type 4 (ConfigRecord), version 0; of a topic
    data = build_batch([NewRecord(None, record, 0)], base_offset=0, partition_leader_epoch=1)
    a_partition(root / f"{CLUSTER_METADATA_TOPIC}-0", [data])
