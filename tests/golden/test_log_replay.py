"""The same batches make the same files: golden partitions of Kafka 4.3, written again by our log.

Every file of a partition directory is compared to the byte: `.log`, `.index`, `.timeindex`, `.txnindex`, `.snapshot`,
`leader-epoch-checkpoint` and `partition.metadata`. What the broker was told is in replays.py, also which partitions
are left out and why.

Not recorded are the batches of the clients where the broker changed their codec (`rc-*`): a leader is given those
batches in the codec of the topic. What recompression does is compared on its own, below.
"""

import random
import shutil
from pathlib import Path

import pytest

from tests.behaviours import behaviour
from tests.golden.corpus import RELEASE, case, case_names, facts, partitions
from tests.golden.replays import (
    LEFT_OUT,
    OF_THE_QUORUM,
    Replay,
    append_as_follower,
    append_as_leader,
    as_sent,
    delete_records,
    files_of,
    is_stamped_by,
    reason_to_leave_out,
    replays,
)
from tidelog.errors import RecordListTooLargeError, UnexpectedAppendOffsetError
from tidelog.log import AppendOrigin, Isolation, ManualClock, UnifiedLog
from tidelog.log.list_offsets import LATEST
from tidelog.log.partition_metadata import parse_uuid
from tidelog.records import Codec, NewRecord, RecordBatch, build_batch, compress, read_batches

NAMES = list(replays())
TRANSACTIONS = f"{RELEASE}/4-transactions"


def replay_of(name: str) -> Replay:
    return replays()[f"{RELEASE}/{name}"]


# -- what is written again -------------------------------------------------------------------------------------------


def test_every_partition_of_the_release_is_written_again_or_left_out_for_a_reason() -> None:
    every = partitions(*case_names(RELEASE))
    left_out = [partition for partition in every if reason_to_leave_out(partition)]
    assert len(NAMES) + len(left_out) == len(every)
    assert len(NAMES) == 73
    unused = [
        prefix
        for prefix in LEFT_OUT
        if not any(str(partition).startswith(f"{RELEASE}/{prefix}") for partition in every)
    ]
    assert unused == []


@pytest.mark.parametrize("name", NAMES)
@behaviour("LOG-032", "LOG-043", "LOG-106", "PSM-006", "PSM-021")
def test_a_follower_writes_the_files_that_kafka_wrote(name: str, tmp_path: Path) -> None:
    replay = replays()[name]
    log = replay.open(tmp_path)
    for batch in replay.batches():
        info = append_as_follower(replay, log, batch)
        assert (info.first_offset, info.last_offset, info.size) == (
            batch.base_offset, batch.last_offset, batch.size_in_bytes,
        )  # fmt: skip
    if not log.log_end_offset:
        log.assign_epoch_start_offset(replay.epoch, 0)  # without a batch only its leader's election tells the epoch
    delete_records(replay, log)
    log.close()

    assert files_of(Path(log.directory)) == replay.expected_files()


@pytest.mark.parametrize("name", NAMES)
@behaviour("LOG-003", "LOG-020", "LOG-105", "PSM-007", "PSM-033", "VAL-020", "VAL-021", "VAL-024", "VAL-026", "VAL-031")
def test_a_leader_writes_the_files_that_kafka_wrote(name: str, tmp_path: Path) -> None:
    replay = replays()[name]
    log = replay.open(tmp_path)
    log.assign_epoch_start_offset(replay.epoch, 0)
    for batch in replay.batches():
        info = append_as_leader(replay, log, batch)
        assert (info.first_offset, info.last_offset) == (batch.base_offset, batch.last_offset)
        assert info.log_append_time_ms == (batch.max_timestamp_ms if is_stamped_by(batch, log) else -1)
    delete_records(replay, log)
    log.close()

    assert files_of(Path(log.directory)) == replay.expected_files()


def test_what_a_leader_is_given_differs_from_what_it_stores(tmp_path: Path) -> None:
    replay = replay_of("7-lookups/image/look-lat-0")
    with replay.open(tmp_path) as log:
        batch = list(replay.batches())[-1]
        sent = RecordBatch(as_sent(batch, log))
    assert batch.base_offset > 0
    assert (sent.base_offset, sent.partition_leader_epoch) == (0, -1)
    assert sent.timestamp_type is not batch.timestamp_type
    assert sent.max_timestamp_ms < batch.max_timestamp_ms
    assert sent.is_valid


@pytest.mark.parametrize("name", NAMES)
@behaviour("SEG-037")
def test_a_whole_segment_in_one_append_is_indexed_batch_by_batch(name: str, tmp_path: Path) -> None:
    replay = replays()[name]
    log = replay.open(tmp_path)
    for number, path in enumerate(replay.partition.logs):
        if number:
            log.roll()
        log.append_as_follower(memoryview(bytearray(path.read_bytes())))
        log.tick()
    log.close()

    # The other files may differ, in Kafka too: the last stable offset of an aborted transaction, for one, looks at
    # every transaction that the same append has opened.
    ours, golden = files_of(Path(log.directory)), replay.expected_files()
    for name in golden:
        if name.endswith((".log", ".index", ".timeindex")):
            assert ours[name] == golden[name], name


# -- while it is open, and after a restart ---------------------------------------------------------------------------

RUNNING = [name for name in NAMES if name.startswith((f"{RELEASE}/8-", f"{RELEASE}/9-"))]


@pytest.mark.parametrize("name", RUNNING)
@behaviour("LOG-069")
def test_an_open_log_has_the_files_and_sizes_of_a_running_broker(name: str, tmp_path: Path) -> None:
    replay = replays()[name]
    directory = replay.partition.path.name
    listed = {
        file["name"].removeprefix(f"{directory}/"): file["size"]
        for file in facts(f"{RELEASE}/10-layout", "running.json")
        if file["name"].startswith(f"{directory}/") and not file["name"].endswith(OF_THE_QUORUM)
    }
    with replay.open(tmp_path) as log:
        log.assign_epoch_start_offset(replay.epoch, 0)
        for batch in replay.batches():
            if log.size < listed["00000000000000000000.log"]:
                append_as_leader(replay, log, batch)
        delete_records(replay, log)
        sizes = {path.name: path.stat().st_size for path in Path(log.directory).iterdir()}
    assert sizes == listed


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(TRANSACTIONS)])
@behaviour("LOG-070", "LOG-075")
def test_after_a_restart_only_the_epochs_have_changed(name: str, tmp_path: Path) -> None:
    replay = replays()[name]
    directory = tmp_path / replay.partition.path.name
    shutil.copytree(replay.partition.path, directory)
    restart = facts(TRANSACTIONS, "after-restart.json")
    log = UnifiedLog.open(
        directory,
        replay.config,
        clean_shutdown=True,
        clock=ManualClock(restart["started"]),
        rng=random.Random(1),
    )
    log.assign_epoch_start_offset(0, log.log_end_offset)
    log.assign_epoch_start_offset(2, log.log_end_offset)
    log.update_high_watermark(log.log_end_offset)
    assert log.topic_id == parse_uuid(replay.topic_id)
    if directory.name in restart["latest"]:
        _, *committed = restart["latest"][directory.name]["lso"]
        _, *visible = restart["latest"][directory.name]["hw"]
        assert log.offset_for_time(LATEST, Isolation.COMMITTED) == tuple(committed)
        assert log.offset_for_time(LATEST, Isolation.HIGH_WATERMARK) == tuple(visible)
    log.close()

    assert files_of(directory) == files_of(case(TRANSACTIONS) / "image-after-restart" / directory.name)


@pytest.mark.parametrize("name", NAMES)
@behaviour("LDR-017", "LDR-035")
def test_indexes_rebuilt_from_the_log_alone_are_those_that_grew_with_it(name: str, tmp_path: Path) -> None:
    replay = replays()[name]
    directory = tmp_path / replay.partition.path.name
    directory.mkdir()
    for path in replay.partition.logs:
        shutil.copyfile(path, directory / path.name)
    replay.open(tmp_path).close()

    ours, golden = files_of(directory), replay.expected_files()
    for name in golden:
        if name.endswith((".log", ".index", ".timeindex", ".txnindex")):
            assert ours[name] == golden[name], name


# -- what a leader changes, and what it refuses ----------------------------------------------------------------------


def in_codec(batch: RecordBatch, codec: Codec) -> bytearray:
    """A client's batch of the same records in another codec."""
    header = batch.header._replace(
        base_offset=0, partition_leader_epoch=-1, attributes=batch.header.attributes & ~0x07 | codec
    )
    return header.seal(compress(codec, batch.records_bytes()))


@pytest.mark.parametrize(
    ("topic", "codec"),
    [
        ("rc-gzip-snappy", Codec.GZIP),
        ("rc-levels", Codec.ZSTD),
        ("rc-lz4-zstd", Codec.LZ4),
        ("rc-none-gzip", Codec.NONE),
        ("rc-snappy-lz4", Codec.SNAPPY),
        ("rc-zstd-uncompressed", Codec.ZSTD),
    ],
)
@behaviour("VAL-027", "VAL-035", "VAL-036")
def test_batches_in_another_codec_are_stored_in_that_of_the_topic(topic: str, codec: Codec, tmp_path: Path) -> None:
    replay = replay_of(f"1-codecs/image/{topic}-0")
    golden = list(replay.batches())
    log = replay.open(tmp_path)
    for batch in golden:
        log.append_as_leader(memoryview(in_codec(batch, codec)), batch.partition_leader_epoch)
    log.close()

    data = b"".join(path.read_bytes() for path in sorted(Path(log.directory).glob("*.log")))
    ours = [batch for batch in read_batches(data) if isinstance(batch, RecordBatch)]
    sizes = {"batch_length": 0, "crc": 0}  # two compressors agree on what is in a stream, not on its bytes
    assert [batch.header._replace(**sizes) for batch in ours] == [batch.header._replace(**sizes) for batch in golden]
    assert [batch.records_bytes() for batch in ours] == [batch.records_bytes() for batch in golden]
    if topic.endswith("uncompressed"):
        assert files_of(Path(log.directory)) == replay.expected_files()


@behaviour("LOG-002")
def test_the_metadata_log_takes_offsets_as_given_and_none_twice(tmp_path: Path) -> None:
    replay = replay_of("9-metadata/image/__cluster_metadata-0")
    first, second = list(replay.batches())[:2]
    with replay.open(tmp_path) as log:
        append_as_leader(replay, log, first)
        end, size = log.log_end_offset, log.size
        again = memoryview(bytearray(first.buffer))
        with pytest.raises(UnexpectedAppendOffsetError):
            log.append_as_leader(again, first.partition_leader_epoch, AppendOrigin.RAFT_LEADER)
        assert (log.log_end_offset, log.size) == (end, size)
        assert append_as_leader(replay, log, second).first_offset == second.base_offset == end


@behaviour("LOG-065")
def test_a_batch_above_the_segment_size_is_refused_with_kafkas_code(tmp_path: Path) -> None:
    replay = replay_of("3-rolls/image/roll-exact-0")
    answer = facts(f"{RELEASE}/3-rolls", "topics.json")["roll-exact"]["too_large"]
    overhead = len(build_batch([NewRecord(b"", b"")])) + 2  # two lengths grow by a byte
    fits = build_batch([NewRecord(b"", bytes(replay.config.segment_bytes - overhead))])
    too_large = build_batch([NewRecord(b"", bytes(replay.config.segment_bytes - overhead + 1))])
    assert (len(fits), len(too_large)) == (3000, 3001)
    with replay.open(tmp_path) as log:
        with pytest.raises(RecordListTooLargeError) as refused:
            log.append_as_leader(memoryview(too_large), 0)
        assert (refused.value.error_code, log.log_end_offset) == (answer["error"], 0)
        assert log.append_as_leader(memoryview(fits), 0).size == replay.config.segment_bytes
