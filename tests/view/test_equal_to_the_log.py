"""What a view reads is what the log itself reads, whatever was done to the log."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.log.logs import ABORT, COMMIT, COORDINATOR, NOW, a_log, batch, in_txn, lead, marker, snapshots_of
from tidelog.log import Isolation, TopicPartition, UnifiedLog
from tidelog.log.checkpoints import OffsetCheckpoint
from tidelog.testing.disk import SimulatedFileSystem
from tidelog.view import PartitionView
from tidelog.view.files import ReadOnlyFiles

PRODUCERS = 3
TIMES = 20

steps = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4), st.integers(0, TIMES)),
    st.tuples(st.just("append in a transaction"), st.integers(1, 3), st.integers(0, PRODUCERS - 1)),
    st.tuples(st.just("end"), st.sampled_from([ABORT, COMMIT]), st.integers(0, PRODUCERS - 1)),
    st.tuples(st.just("roll"), st.none(), st.none()),
    st.tuples(st.just("high watermark"), st.floats(0, 1), st.none()),
    st.tuples(st.just("delete records"), st.floats(0, 1), st.none()),
    st.tuples(st.just("truncate"), st.floats(0, 1), st.none()),
)

IN_THE_WORDS_OF_A_VIEW: dict[Isolation, dict[str, Any]] = {
    Isolation.LOG_END: {},
    Isolation.HIGH_WATERMARK: {"end_bound": "highWatermark"},
    Isolation.COMMITTED: {"committed": True, "end_bound": "highWatermark"},
}


class Driver:
    """Does the steps that a log can take now."""

    def __init__(self, log: UnifiedLog) -> None:
        self.log = log
        self.sequences = [0] * PRODUCERS
        self.epoch = 0
        self.places: set[int] = set()  # where batches begin
        self.open: dict[int, int] = {}  # first offset of a transaction, by its producer
        self.ended: list[tuple[int, int, int]] = []  # producer, first offset, offset of the marker
        self.forgotten: set[int] = set()  # offsets of markers that the log has forgotten

    def do(self, name: str, what: Any, which: Any) -> None:
        log = self.log
        self.places.add(log.log_end_offset)
        if name == "append":
            lead(log, batch(what, timestamp_ms=NOW + which), epoch=self.epoch)
        elif name == "append in a transaction":
            self.open.setdefault(which, log.log_end_offset)
            lead(log, in_txn(which, self.sequences[which], what), epoch=self.epoch)
            self.sequences[which] += what
        elif name == "end":
            if which in self.open:
                self.ended.append((which, self.open.pop(which), log.log_end_offset))
            lead(log, marker(which, what), epoch=self.epoch, origin=COORDINATOR)
        elif name == "roll":
            log.roll()
        elif name == "high watermark":
            log.update_high_watermark(self._between(log.high_watermark, log.log_end_offset, what))
        elif name == "delete records":
            log.delete_records(self._between(log.log_start_offset, log.high_watermark, what))
        else:
            self._truncate(self._between(log.high_watermark, log.log_end_offset, what))

    def _truncate(self, offset: int) -> None:
        """Cut the log; producers begin anew, in the epoch of another leader.

        A truncation takes all transactions for replicated that ended before the snapshot from which producers are
        reloaded, as Kafka's truncateAndReload does.
        """
        start = self.log.log_start_offset
        loaded = max([start, *(at for at in snapshots_of(self.log) if start < at <= offset)])
        if self.log.truncate_to(offset):
            self.forgotten = {end for _, _, end in self.ended if end < loaded}
        self.open = {producer: first for producer, first in self.open.items() if first < offset}
        self.open |= {producer: first for producer, first, end in self.ended if first < offset <= end}
        self.ended = [txn for txn in self.ended if txn[2] < offset]
        self.places = {place for place in self.places if place <= offset}
        self.epoch += 1
        known = {producer.producer_id: producer.last_sequence for producer in self.log.producers.active_producers()}
        self.sequences = [known.get(producer, -1) + 1 for producer in range(PRODUCERS)]

    def forgotten_from(self) -> list[int]:
        """Where transactions begin that the log has forgotten, and whose markers are not replicated."""
        start, replicated = self.log.log_start_offset, self.log.high_watermark
        return [max(first, start) for _, first, end in self.ended if end >= replicated and end in self.forgotten]

    def _between(self, low: int, high: int, share: float) -> int:
        """An offset at which a batch begins or the log ends, as replication moves bounds."""
        places = [offset for offset in sorted({*self.places, self.log.log_end_offset}) if low <= offset <= high]
        return places[int((len(places) - 1) * share)] if places else low


FORGETFUL = [
    ("append in a transaction", 2, 1),
    ("end", ABORT, 1),
    ("roll", None, None),
    ("append", 1, 3),
    ("append", 1, 4),
    ("high watermark", 0.3, None),  # in front of the marker
    ("truncate", 0.9, None),
]


@example(FORGETFUL, False)
@given(st.lists(steps, max_size=40), st.booleans())
def test_a_view_reads_what_the_log_reads(done: list[tuple[str, Any, Any]], is_closed: bool) -> None:
    disk = SimulatedFileSystem()
    log = a_log("/data", fs=disk, segment_bytes=400, index_interval_bytes=100)
    driver = Driver(log)
    for step in done:
        driver.do(*step)
    topic = TopicPartition("topic", 0)
    OffsetCheckpoint(disk, "/data/replication-offset-checkpoint").write({topic: log.high_watermark})
    OffsetCheckpoint(disk, "/data/log-start-offset-checkpoint").write({topic: log.log_start_offset})
    view = PartitionView.at(ReadOnlyFiles(disk), "/data/topic-0")

    assert view.log_start_offset == log.log_start_offset
    assert view.log_end_offset == log.log_end_offset
    assert view.high_watermark == log.high_watermark
    # A view knows from the files which transactions have ended, and where. So it never forgets one.
    stable = view.last_stable_offset
    assert stable == min([log.last_stable_offset, *driver.forgotten_from()])
    everything = list(log.records())
    committed = [record for record in log.records(isolation=Isolation.COMMITTED) if record.offset < stable]
    asked = [-1, -2, -3, *range(NOW, NOW + TIMES + 2)]
    bounds = {
        isolation: words
        for isolation, words in IN_THE_WORDS_OF_A_VIEW.items()
        if isolation is not Isolation.COMMITTED or stable == log.last_stable_offset
    }
    answers = [log.offset_for_time(time, isolation) for time in asked for isolation in bounds]
    if is_closed:
        log.close()
        view = view.refresh()
    assert list(view.read()) == everything
    assert list(view.read(committed=True, end_bound="highWatermark")) == committed
    for first in range(log.log_start_offset, log.log_end_offset, 4):
        assert list(view.read(first)) == [record for record in everything if record.offset >= first]
        limit = first + 5
        assert list(view.read(first, limit, committed=True, end_bound="highWatermark")) == [
            record for record in committed if first <= record.offset < limit
        ]
    views = bounds.values()
    assert [view.offset_for_time(time, **words) for time in asked for words in views] == answers
    assert [view.limit_of(**words) for words in views] == [view.offset_for_time(-1, **words).offset for words in views]
    assert view.notices == ()
