"""Views of a directory that a real broker writes to, rolls, deletes from and compacts while it is looked at.

Kafka's own producers write two topics without a pause: an idempotent one, and two with transactions, of which one
aborts every time. Of one topic the broker deletes by age, the other it compacts, both in small segments. Meanwhile
looks are taken, and each reads all there is in every way. At the end a transaction is open, the broker is told to leave
everything as it is, and Kafka's consumer says what there is to be read.
"""

import base64
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tidelog
from tests.compat import broker_clients as clients
from tests.compat.broker import Broker
from tests.compat.kafka_tools import JVM_OPTIONS, jars
from tidelog.view import PartitionView

DELETED, COMPACTED = TOPICS = ("deleted", "compacted")
LEVELS = {False: "read_uncommitted", True: "read_committed"}
COLUMNS = ("offset", "timestamp", "key", "value", "headers")
FEWEST_LOOKS = 20
TIMEOUT_S = 30

EAGER = {
    "log.retention.check.interval.ms": 100,
    "log.initial.task.delay.ms": 100,
    "log.cleaner.backoff.ms": 50,
    "log.segment.delete.delay.ms": 100,
    "replica.high.watermark.checkpoint.interval.ms": 100,
}
SMALL = {"internal_segment_bytes": 16_384, "index_interval_bytes": 500, "file_delete_delay_ms": 100}

every_topic = pytest.mark.parametrize("topic", TOPICS)
every_level = pytest.mark.parametrize("committed", LEVELS)


class Row(NamedTuple):
    """A record as anybody reads it; `truth` is its header."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    truth: bytes


class JavaClients:
    """Kafka's producers and its consumer, in one JVM (kafka/Clients.java)."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def begin(self) -> None:
        """Write rounds from now on; the first one is written."""
        self._ask("begin")

    def finish(self) -> int:
        """End the last round, and leave a transaction open; how many rounds there were."""
        return int(self._ask("finish"))

    def consume(self, topic: str, committed: bool) -> tuple[list[Row], int]:
        """All that there is from the beginning on, and where it ends."""
        answer = json.loads(self._ask(f"consume {topic} {LEVELS[committed]}"))
        rows = [Row(offset, time_ms, *map(_bytes, others)) for offset, time_ms, *others in answer["records"]]  # type: ignore[arg-type]
        return rows, answer["end"]

    def times(self, topic: str, committed: bool, times: Sequence[int]) -> list[int]:
        """The offsets of the first records that are not older; -1 where there is none."""
        answer = self._ask(" ".join(["times", topic, LEVELS[committed], *map(str, times)]))
        return list(json.loads(answer))

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"Kafka's clients ended at {line!r}"
        return answer


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@contextmanager
def java_clients(broker: Broker) -> Iterator[JavaClients]:
    source = Path(__file__).parent / "kafka" / "Clients.java"
    command = ["java", *JVM_OPTIONS, "-cp", f"{jars()}/*", str(source), broker.address, *TOPICS]
    output = broker.root.parent / "clients.output"
    with (
        output.open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=dict(os.environ)
        ) as process,
    ):
        try:
            yield JavaClients(process)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(TIMEOUT_S) == 0, output.read_text(encoding="utf-8")
        finally:
            process.kill()


# -- ways to read ------------------------------------------------------------------------------------------------------


def rows_read(view: PartitionView, committed: bool) -> list[Row]:
    return [
        Row(record.offset, record.timestamp_ms, record.key, record.value, record.headers[0].value or b"")
        for record in view.read(committed=committed)
    ]


def rows_scanned(view: PartitionView, committed: bool) -> list[Row]:
    rows: list[Row] = []
    for batch in view.scan(columns=COLUMNS, committed=committed):
        columns = batch.to_pydict()
        times = batch.column("timestamp").cast("int64").to_pylist()
        truths = [headers[0]["value"] for headers in columns["headers"]]
        rows += map(Row, columns["offset"], times, columns["key"], columns["value"], truths)
    return rows


WAYS: dict[str, Callable[[PartitionView, bool], list[Row]]] = {"read": rows_read, "scan": rows_scanned}


def ensure_sound(rows: list[Row], *, committed: bool) -> None:
    """Each is a record that was sent, and they come in order, none twice."""
    offsets = [row.offset for row in rows]
    assert offsets == sorted(set(offsets))
    for row in rows:
        status, key, time_ms = row.truth.decode().split(" ")
        assert (row.key, row.timestamp_ms) == (key.encode(), int(time_ms))
        assert row.value is None or set(row.value.split(b" ")) == {row.key, b""}
        assert status == "committed" or (status == "aborted" and not committed)


# -- the story ---------------------------------------------------------------------------------------------------------


@dataclass
class Story:
    """What was seen, in the order of events."""

    rounds: int = 0
    starts: list[int] = field(default_factory=list)  # of the topic that is deleted from, at each look
    ends: list[int] = field(default_factory=list)
    read: list[list[Row]] = field(default_factory=list)  # all of that topic, at each look
    compacted: list[list[Row]] = field(default_factory=list)
    swapped: set[int] = field(default_factory=set)  # base offsets under which another file was found later
    consumed: dict[tuple[str, bool], tuple[list[Row], int]] = field(default_factory=dict)
    shown: dict[tuple[str, bool, str], list[Row]] = field(default_factory=dict)  # by views, in each way
    limits: dict[tuple[str, bool], int] = field(default_factory=dict)
    asked: dict[str, list[int]] = field(default_factory=dict)  # times
    answered: dict[tuple[str, bool], list[int]] = field(default_factory=dict)  # by the broker
    ours: dict[tuple[str, bool], list[int]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    story = Story()
    root = tmp_path_factory.mktemp("views") / "root"
    with Broker.format(root, EAGER).running() as broker:
        clients.create_topic(broker, DELETED, 1, cleanup_policy="delete", retention_ms=1500, **SMALL)
        clients.create_topic(broker, COMPACTED, 1, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, **SMALL)
        with java_clients(broker) as kafka:
            kafka.begin()
            look_while_they_write(story, root)
            story.rounds = kafka.finish()
            clients.set_topic_configs(broker, DELETED, retention_ms=-1)
            clients.set_topic_configs(broker, COMPACTED, min_cleanable_dirty_ratio=1.0)
            for topic in TOPICS:
                compare_at_rest(story, root, kafka, topic)
    return story


def look_while_they_write(story: Story, root: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    inodes: dict[int, int] = {}
    while len(story.starts) < FEWEST_LOOKS or not has_seen_it_all(story):
        assert time.monotonic() < deadline, f"starts {story.starts}, ends {story.ends}, swapped {story.swapped}"
        logs = tidelog.open(root)
        for topic in TOPICS:
            for committed in LEVELS:
                for rows_of in WAYS.values():
                    ensure_sound(rows_of(logs.refresh()[topic, 0], committed), committed=committed)
        view = logs[DELETED, 0]
        story.starts.append(view.log_start_offset)
        story.ends.append(view.log_end_offset)
        story.read.append(rows_read(view, False))
        story.compacted.append(rows_read(logs[COMPACTED, 0], False))
        for path in (root / f"{COMPACTED}-0").glob("*.log"):
            note_swap(story, inodes, path)


def note_swap(story: Story, inodes: dict[int, int], path: Path) -> None:
    base = int(path.stem)
    try:
        inode = path.stat().st_ino
    except FileNotFoundError:
        return
    if inodes.setdefault(base, inode) != inode:
        story.swapped.add(base)


def has_seen_it_all(story: Story) -> bool:
    return len(set(story.starts)) > 3 and bool(story.swapped)


def compare_at_rest(story: Story, root: Path, kafka: JavaClients, topic: str) -> None:
    """Ask the broker and a view, until the broker says the same before and after: then nothing changed between."""
    deadline = time.monotonic() + TIMEOUT_S
    before: Any = None
    while True:
        view = tidelog.open(root)[topic, 0]
        for committed in LEVELS:
            for way, rows_of in WAYS.items():
                story.shown[topic, committed, way] = rows_of(view, committed)
            story.limits[topic, committed] = view.limit_of(committed=committed)
        story.asked[topic] = times_around(story.shown[topic, False, "read"])
        for committed in LEVELS:
            words: Any = {"committed": committed, "end_bound": "highWatermark"}
            found = [view.offset_for_time(time_ms, **words) for time_ms in story.asked[topic]]
            story.ours[topic, committed] = [-1 if place is None else place.offset for place in found]
        after = {committed: kafka.consume(topic, committed) for committed in LEVELS}
        if before == after and view.high_watermark == view.log_end_offset:
            break
        before = after
        assert time.monotonic() < deadline, f"{topic} does not come to rest"
    for committed in LEVELS:
        story.consumed[topic, committed] = after[committed]
        story.answered[topic, committed] = kafka.times(topic, committed, story.asked[topic])


def times_around(rows: list[Row]) -> list[int]:
    """Times of records all over the log, and beside them."""
    some = rows[:: max(len(rows) // 20, 1)] + rows[-1:]
    return [0, *(row.timestamp_ms + shift for row in some for shift in (0, 1)), rows[-1].timestamp_ms + 1000]


# -- what was seen -----------------------------------------------------------------------------------------------------


def test_the_broker_rolled_deleted_and_compacted_between_the_looks(story: Story) -> None:
    """So that the tests below are about something."""
    assert story.rounds > 10
    assert story.starts == sorted(story.starts)
    assert len(set(story.starts)) > 3
    assert len(set(story.ends)) > FEWEST_LOOKS / 2
    assert story.swapped
    assert len(story.compacted[-1]) < story.compacted[-1][-1].offset / 2


def test_no_record_is_missing_that_was_there_before_and_after(story: Story) -> None:
    """Offsets that were written by one look and not deleted by the next are those of markers, or were read by both."""
    for (start, end), before, after in zip(
        zip(story.starts[1:], story.ends, strict=False), story.read, story.read[1:], strict=False
    ):
        kept = [row for row in before if start <= row.offset < end]
        assert kept == [row for row in after if row.offset < end]


def test_compaction_takes_no_key_away(story: Story) -> None:
    """The last record of a key stays, unless it is a tombstone, aborted or followed by another."""
    for before, after in zip(story.compacted, story.compacted[1:], strict=False):
        keys = {row.key for row in after}
        last = {row.key: row for row in before if row.truth.startswith(b"committed")}
        assert {key for key, row in last.items() if row.value is not None} <= keys


@every_topic
@every_level
@pytest.mark.parametrize("way", WAYS)
def test_at_rest_a_view_gives_what_kafkas_consumer_is_given(
    story: Story, topic: str, committed: bool, way: str
) -> None:
    rows, end = story.consumed[topic, committed]
    assert len(rows) > 20
    assert story.shown[topic, committed, way] == rows
    assert story.limits[topic, committed] == end


@every_topic
def test_an_open_transaction_is_the_end_of_committed_data(story: Story, topic: str) -> None:
    assert story.consumed[topic, True][1] < story.consumed[topic, False][1]
    assert {row.truth.split(b" ")[0] for row in story.consumed[topic, True][0]} == {b"committed"}
    assert {row.truth.split(b" ")[0] for row in story.consumed[topic, False][0]} == {b"committed", b"aborted"}


@every_topic
@every_level
def test_a_time_is_at_the_offset_that_the_broker_names(story: Story, topic: str, committed: bool) -> None:
    answers = story.answered[topic, committed]
    assert story.ours[topic, committed] == answers
    assert -1 in answers
    assert len(set(answers)) > 5
