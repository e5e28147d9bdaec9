"""Questions that Kafka 4.3 was asked about its logs, asked of ours: by time, by offset, and of idempotent producers.

The logs are those of replays.py, and everything is asked twice: of the log as we wrote it, and of Kafka's own files.
"""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.behaviours import behaviour
from tests.golden.corpus import RELEASE, case, expected, facts
from tests.golden.replays import Replay, append_as_leader, as_sent, delete_records, files_of, replays
from tidelog.errors import TidelogError, UnsupportedError
from tidelog.log import Isolation, Region, UnifiedLog
from tidelog.log.batch_info import batch_info
from tidelog.records import (
    BATCH_HEADER_SIZE,
    BatchHeader,
    NewRecord,
    RecordBatch,
    build_batch,
    first_batch_size,
)

LOOKUPS = f"{RELEASE}/7-lookups"
TRANSACTIONS = f"{RELEASE}/4-transactions"
ISOLATIONS = {"read_uncommitted": Isolation.HIGH_WATERMARK, "read_committed": Isolation.COMMITTED}
NOTHING = (-1, -1, -1)  # timestamp, offset and leader epoch of an answer that finds no record


def written(replay: Replay, parent: Path) -> UnifiedLog:
    """The log of a golden partition, still open."""
    log = replay.open(parent)
    log.assign_epoch_start_offset(replay.epoch, 0)
    for batch in replay.batches():
        append_as_leader(replay, log, batch)
    delete_records(replay, log)
    return log


def found(replay: Replay, parent: Path) -> UnifiedLog:
    """The log that Kafka left, opened."""
    shutil.copytree(replay.partition.path, parent / replay.partition.path.name)
    log = replay.open(parent, log_start_offset=replay.log_start_offset, clean_shutdown=True)
    log.assign_epoch_start_offset(replay.epoch, log.log_end_offset)
    log.update_high_watermark(log.log_end_offset)
    return log


@pytest.fixture(scope="module", params=[written, found])
def logs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, UnifiedLog]]:
    """The logs of both cases by directory name, once written by us and once by Kafka. Tests only read them."""
    parent = tmp_path_factory.mktemp("lookups")
    wanted = [replay for replay in replays().values() if replay.partition.case in (LOOKUPS, TRANSACTIONS)]
    opened = {replay.partition.path.name: request.param(replay, parent) for replay in wanted}
    yield opened
    for log in opened.values():
        log.close()


def list_offsets(log: UnifiedLog, timestamp_ms: int, isolation: Isolation) -> list[int]:
    """The answer in the columns of the corpus: time asked, error, timestamp, offset, leader epoch."""
    try:
        found = log.offset_for_time(timestamp_ms, isolation)
    except UnsupportedError as error:
        return [timestamp_ms, error.error_code, *NOTHING]
    if found is None:
        return [timestamp_ms, 0, *NOTHING]
    return [timestamp_ms, 0, found.timestamp_ms, found.offset, -1 if found.leader_epoch is None else found.leader_epoch]


def whole_and_cut_batches(data: bytes) -> list[list[Any]]:
    """The batches of an answer, `[first offset, last offset, size, is complete]`; a cut one if its header is there."""
    batches: list[list[Any]] = []
    position = 0
    while (size := first_batch_size(data[position:])) is not None and len(data) - position >= BATCH_HEADER_SIZE:
        batch = batch_info(data, position)
        batches.append([batch.base_offset, batch.last_offset, size, size <= len(data) - position])
        position += size
    return batches


def fetch(log: UnifiedLog, offset: int, max_bytes: int, isolation: Isolation) -> Region | TidelogError:
    try:
        return log.read(offset, max_bytes, isolation)
    except TidelogError as error:
        return error


# -- by time ---------------------------------------------------------------------------------------------------------

TOPICS = list(facts(LOOKUPS, "lookups.json"))
BY_TIME = [(topic, level) for topic in TOPICS for level in facts(LOOKUPS, "lookups.json")[topic]["list_offsets"]]


@pytest.mark.parametrize(("topic", "level"), BY_TIME)
@behaviour("LOG-073", "LOG-074", "LOG-076", "LOG-077", "SEG-014")
def test_list_offsets_answers_as_kafka_did(topic: str, level: str, logs: dict[str, UnifiedLog]) -> None:
    rows = facts(LOOKUPS, "lookups.json")[topic]["list_offsets"][level]
    assert {row[0] for row in rows} > {-1, -2, -3, -4, -5, -6, -7, 0}
    ours = [list_offsets(logs[f"{topic}-0"], row[0], ISOLATIONS[level]) for row in rows]
    assert ours == rows


def test_a_segment_below_the_log_start_ends_the_search_until_it_is_deleted(tmp_path: Path) -> None:
    changed = facts(LOOKUPS, "after-restart-differences.json")
    assert list(changed) == ["look-start"]
    with found(replays()[f"{LOOKUPS}/image/look-start-0"], tmp_path) as log:
        for level, pairs in changed["look-start"].items():
            asked = [before[0] for before, _ in pairs]
            assert [list_offsets(log, time, ISOLATIONS[level]) for time in asked] == [before for before, _ in pairs]
            assert log.delete_old_segments() == 1
            assert [list_offsets(log, time, ISOLATIONS[level]) for time in asked] == [after for _, after in pairs]


# -- by offset -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", TOPICS)
@behaviour("LOG-055", "LOG-059", "LOG-061")
def test_a_fetch_returns_the_bytes_that_kafka_returned(topic: str, logs: dict[str, UnifiedLog]) -> None:
    about, log = facts(LOOKUPS, "lookups.json")[topic], logs[f"{topic}-0"]
    assert (log.high_watermark, log.log_start_offset) == (about["highWatermark"], about["logStartOffset"])
    for row in about["fetch"]:
        offset, max_bytes = row[:2]
        answer = fetch(log, offset, max_bytes, Isolation.HIGH_WATERMARK)
        if isinstance(answer, TidelogError):
            assert [offset, max_bytes, answer.error_code, 0, None, None, None] == row
            continue
        data = answer.read()
        batches = whole_and_cut_batches(data)
        *_, (_, last, _, is_complete) = batches or [[None, None, 0, False]]
        digest = hashlib.sha256(data).hexdigest()[: len(row[6] or "")]
        ours = [offset, max_bytes, 0, len(data), batches[0][0] if data else None, last if is_complete else None]
        assert [*ours, digest or None] == row
        assert answer.is_first_batch_incomplete is False


def test_a_walk_by_fetches_meets_every_record_that_a_consumer_was_given(logs: dict[str, UnifiedLog]) -> None:
    for topic, about in facts(LOOKUPS, "lookups.json").items():
        log = logs[f"{topic}-0"]
        offset, seen = log.log_start_offset, list[int]()
        while offset < log.high_watermark:
            for first, last, _, is_complete in whole_and_cut_batches(log.read(offset, 300).read()):
                if is_complete:
                    seen += range(max(first, offset), last + 1)
                    offset = last + 1
        consumed = [record[0] for record in about["records"]]
        assert [offset for offset in seen if offset in set(consumed)] == consumed


# -- transactions ----------------------------------------------------------------------------------------------------

PARTITIONS = sorted(path.stem for path in (case(TRANSACTIONS) / "expected").glob("*.json"))


@pytest.mark.parametrize("name", PARTITIONS)
@behaviour("LOG-011", "LOG-063", "LOG-118")
def test_a_committed_fetch_returns_the_bytes_and_the_aborted_list_of_kafka(
    name: str, logs: dict[str, UnifiedLog]
) -> None:
    log = logs[name]
    for row in expected(TRANSACTIONS, name)["fetch_read_committed"]:
        region = fetch(log, row["offset"], row["partitionMaxBytes"], Isolation.COMMITTED)
        where = (row["offset"], row["partitionMaxBytes"])
        if isinstance(region, TidelogError):
            assert region.error_code == row["error"], where
            continue
        data = region.read()
        assert (0, log.high_watermark, log.last_stable_offset) == (
            row["error"],
            row["highWatermark"],
            row["lastStableOffset"],
        )
        assert region.aborted is not None
        # A producer whose transactions were aborted twice stands twice; the order is that of the markers.
        assert [[txn.producer_id, txn.first_offset] for txn in region.aborted] == row["aborted"], where
        assert whole_and_cut_batches(data) == row["batches"], where
        assert (len(data), hashlib.sha256(data).hexdigest()) == (row["bytes"], row["sha256"]), where


@pytest.mark.parametrize("name", PARTITIONS)
@behaviour("LOG-013", "LOG-014")
def test_producers_and_ends_are_described_as_kafka_described_them(name: str, logs: dict[str, UnifiedLog]) -> None:
    log, about = logs[name], expected(TRANSACTIONS, name)
    described = [
        (
            producer["producerId"], producer["producerEpoch"], producer["lastSequence"], producer["lastTimestamp"],
            producer["coordinatorEpoch"], producer["currentTxnStartOffset"],
        )
        for producer in about["producers"]
    ]  # fmt: skip
    assert log.producers.active_producers() == described
    for level, isolation in (("0", Isolation.HIGH_WATERMARK), ("1", Isolation.COMMITTED)):
        answers = [list_offsets(log, special, isolation)[1:] for special in (-1, -2, -3)]
        assert answers == about["list_offsets"][level]


# -- idempotent producers --------------------------------------------------------------------------------------------


@behaviour("LOG-024", "LOG-047", "LOG-048", "LOG-049", "LOG-052", "PSM-001", "PSM-005")
def test_sequences_are_accepted_answered_again_or_refused_as_by_kafka(tmp_path: Path) -> None:
    replay = replays()[f"{TRANSACTIONS}/image/idem-raw-0"]
    asked = facts(TRANSACTIONS, "topics.json")["idem-raw"]["answers"]
    stored = {batch.base_offset: batch for batch in replay.batches()}
    first_time = facts(TRANSACTIONS, "clock.json")["data_base_timestamp"]
    answers = []
    log = replay.open(tmp_path)
    log.assign_epoch_start_offset(0, 0)
    for row in asked:
        if row["error"]:
            batch = idempotent_batch(row, stored[0].producer_id + row["producer"] - 1, first_time)
        else:  # what was accepted lies in the log, and what was sent twice too
            batch = as_sent(stored[row["baseOffset"]], log)
        sent = RecordBatch(batch)
        assert (sent.producer_epoch, sent.base_sequence, sent.count) == (
            row["epoch"], row["baseSequence"], row["count"],
        )  # fmt: skip
        answers.append(row | answer_to(log, batch))
    log.close()

    assert answers == asked
    # Neither what was refused nor what was repeated has left a trace.
    assert files_of(Path(log.directory)) == replay.expected_files()


def idempotent_batch(row: dict[str, Any], producer_id: int, first_time_ms: int) -> bytearray:
    """A hand-made batch, which unlike a builder's may have a producer without a sequence."""
    plain = build_batch(NewRecord(b"k", b"v", first_time_ms + number) for number in range(row["count"]))
    header = BatchHeader.unpack(plain)._replace(
        producer_id=producer_id, producer_epoch=row["epoch"], base_sequence=row["baseSequence"]
    )
    return header.seal(plain[BATCH_HEADER_SIZE:])


def answer_to(log: UnifiedLog, batch: bytearray) -> dict[str, int]:
    """What a produce response would say."""
    try:
        info = log.append_as_leader(memoryview(batch), 0)
    except TidelogError as error:
        return {"error": error.error_code, "baseOffset": -1, "logAppendTime": -1, "logStartOffset": 0}
    return {
        "error": 0,
        "baseOffset": info.first_offset,
        "logAppendTime": info.log_append_time_ms,
        "logStartOffset": info.log_start_offset,
    }
