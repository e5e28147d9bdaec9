"""Opening what a crash has left, as a broker would, and judging the result.

`judge` opens the log of an image and holds it against the states the log may have been in. It checks, each under the
name that a finding then carries:

    open         the log opens, and nothing but our own errors would have come out of it
    prefix       the batches are the first ones of such a state, byte by byte, from the log start on
    flushed      all batches below the recovery point at the moment of the cut are there
    offsets      log start <= last stable offset <= high watermark <= log end, recovery point <= log end
    index        every entry of `.index` and `.timeindex` names a batch that is there, in order
    producers    producer state is what the batches say; so is where the oldest open transaction begins
    aborted      so are the transaction indexes
    epochs       leader epochs increase, lie within the log, and are those of the batches
    topic id     is the one that was assigned, if a batch was appended since
    again        recovering once more changes no byte and no offset
    use          it can be read everywhere, appended to, rolled, closed, and opened cleanly

Producers stay known when their batches are deleted, but only by snapshots. So state may be the one of a replay from
any batch at or below the log start, and if nothing was deleted, of all batches.
"""

import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from tests.property.crash_model import Aborted, Batch, Known, Producers, State, batch_of, batches_in, stamped
from tidelog.errors import TidelogError
from tidelog.log import Isolation, LogConfig, ManualClock, UnifiedLog
from tidelog.log.checkpoints import CleanShutdownFile, OffsetCheckpoint
from tidelog.log.files import FileSystem, join, read_whole
from tidelog.log.names import (
    DELETED,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    TopicPartition,
    file_name,
)
from tidelog.records import NewRecord, build_batch

ROOT = "/data"
PARTITION = TopicPartition("topic", 0)
DIRECTORY = f"{ROOT}/{PARTITION}"

_OFFSET_ROW, _TIME_ROW, _TXN_ROW = struct.Struct(">ii"), struct.Struct(">qi"), struct.Struct(">hqqqq")


class Broken(AssertionError):
    """A property does not hold. `kind` is its name."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Stop(NamedTuple):
    """What the checkpoints of the root say when a log is opened."""

    recovery_point: int = 0
    log_start: int = 0
    is_clean: bool = False


@dataclass(frozen=True)
class Expectation:
    """What the log may be after a cut: the beginning of one of `states` that reaches to `floor`."""

    states: tuple[State, ...]
    floor: int  # everything below has been flushed
    noted: Stop | None  # what the checkpoints say; None: they are files of the root
    topic_id: uuid.UUID | None
    id_from: int  # a batch from this offset on shows that the topic id had been written
    deleted_to: int  # batches below had been deleted at some time, and some may be back


@dataclass(frozen=True)
class Found:
    """A log as it was opened, with the batches that its files hold."""

    log: UnifiedLog
    state: State  # as which it goes on
    batches: dict[int, list[tuple[int, Batch]]]  # of each segment, with their positions


def require(is_so: bool, kind: str, text: object) -> None:
    """Raise Broken unless it is so."""
    if not is_so:
        raise Broken(kind, str(text))


# -- opening -----------------------------------------------------------------------------------------------------------


def read_stop(fs: FileSystem) -> Stop:
    """What the files of the root say. The marker of a clean stop is used up by that."""
    marker = CleanShutdownFile(fs, ROOT)
    is_clean = marker.exists()
    if is_clean:
        marker.delete()
    recovery_points = OffsetCheckpoint(fs, join(ROOT, RECOVERY_POINT_CHECKPOINT)).read()
    log_starts = OffsetCheckpoint(fs, join(ROOT, LOG_START_CHECKPOINT)).read()
    return Stop(recovery_points.get(PARTITION, 0), log_starts.get(PARTITION, 0), is_clean)


def open_log(fs: FileSystem, stop: Stop, config: LogConfig, clock: ManualClock) -> UnifiedLog:
    """The log of the directory, opened as the checkpoints say."""
    return UnifiedLog.open(
        DIRECTORY,
        config,
        recovery_point=stop.recovery_point,
        log_start_offset=stop.log_start,
        clean_shutdown=stop.is_clean,
        clock=clock,
        fs=fs,
        rng=Random(1),
    )


def judge(
    fs: FileSystem, expected: Expectation, config: LogConfig, now_ms: int, rng: Random, *, thoroughly: bool = True
) -> Found:
    """Open what a crash has left and check everything; the log, open, behind its first recovery."""
    clock = ManualClock(now_ms)
    try:
        stop = expected.noted or read_stop(fs)
        if not stop.is_clean and rng.random() < 0.2:
            stop = stop._replace(recovery_point=0)  # which is always right
        log = open_log(fs, stop, config, clock)
    except Exception as error:  # whatever it is, the log did not open
        raise Broken("open", f"{type(error).__name__}: {error}") from error
    found = check(fs, log, stop, expected)
    if thoroughly:
        _check_again(fs, found, expected, stop, config, clock)
        if rng.random() < 0.3:
            _check_use(fs, found, expected, config, clock)
    return found


def check(fs: FileSystem, log: UnifiedLog, stop: Stop, expected: Expectation) -> Found:
    """Check a log that was just opened."""
    try:
        batches = _segment_batches(fs, log)
        state = _matched(log, [batch for part in batches.values() for _, batch in part], expected)
        _check_offsets(log, stop)
        for segment in log.segments:
            _check_indexes(fs, log, segment.base_offset, batches[segment.base_offset])
        _check_producers(fs, log, state)
        _check_epochs(log, state, expected.deleted_to)
        if expected.topic_id is not None:
            is_due = any(batch.base_offset >= expected.id_from for batch in state.batches)
            require(
                log.topic_id == expected.topic_id or (log.topic_id is None and not is_due), "topic id", log.topic_id
            )
    except TidelogError as error:
        raise Broken("use", f"{type(error).__name__}: {error}") from error
    return Found(log, state, batches)


# -- the batches -------------------------------------------------------------------------------------------------------


def _segment_batches(fs: FileSystem, log: UnifiedLog) -> dict[int, list[tuple[int, Batch]]]:
    """The batches in each segment file. Below the log start there may be anything."""
    found: dict[int, list[tuple[int, Batch]]] = {}
    segments = log.segments
    for segment, following in zip(segments, (*segments[1:], None), strict=True):
        is_deleted = following is not None and following.base_offset <= log.log_start_offset
        content = read_whole(fs, join(DIRECTORY, file_name(segment.base_offset, LOG_SUFFIX)))
        if following is None and not any(content[segment.size :]):
            content = content[: segment.size]  # what is preallocated behind it is still to be written
        parts = found[segment.base_offset] = []
        for position, data in batches_in(content):
            if len(data) < 61 or int.from_bytes(data[8:12], "big", signed=True) + 12 != len(data):
                require(is_deleted, "prefix", f"{len(data)} bytes behind the last batch of {segment}")
                break
            parts.append((position, batch_of(data)))
    return found


def _matched(log: UnifiedLog, found: Sequence[Batch], expected: Expectation) -> State:
    """The state that the log is the beginning of, cut where the log ends."""
    start, end = log.log_start_offset, log.log_end_offset
    visible = tuple(batch for batch in found if batch.last_offset >= start)
    active_base = log.active_segment.base_offset
    require(end == max([active_base, *(batch.end for batch in found[-1:])]), "offsets", f"log end {end}: {visible}")
    candidates = [state for state in expected.states if _begins(state, start, visible)]
    if not candidates:
        known = [state.batches[state.first_from(start) :] for state in expected.states]
        raise Broken("prefix", f"from {start} to {end}: {list(visible)}\n  is no beginning of {known}")
    require(start <= max(state.start for state in candidates), "prefix", f"{log}, {expected.states[-1].start} expected")
    require(end <= max(state.end for state in candidates), "prefix", f"{log} was never so long")
    promised = [state for state in candidates if _has_flushed(state, start, len(visible), expected.floor)]
    if not promised:
        raise Broken("flushed", f"{log}, but everything below {expected.floor} had been flushed")
    reached = [state for state in promised if end >= state.origin]
    require(bool(reached), "flushed", f"{log}, begun anew at {promised[0].origin}")
    state = reached[0]
    kept = state.batches[: state.first_from(start) + len(visible)]
    return State(kept, start, end, state.origin)


def _begins(state: State, start: int, visible: Sequence[Batch]) -> bool:
    first = state.first_from(start)
    return state.batches[first : first + len(visible)] == tuple(visible)


def _has_flushed(state: State, start: int, count: int, floor: int) -> bool:
    first = state.first_from(start)
    return not any(batch.last_offset < floor for batch in state.batches[first + count :])


# -- the rest of it ----------------------------------------------------------------------------------------------------


def _check_offsets(log: UnifiedLog, stop: Stop) -> None:
    bounds = (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset)
    require(list(bounds) == sorted(bounds), "offsets", f"start, stable, high watermark, end: {bounds}")
    require(log.log_start_offset >= stop.log_start, "offsets", f"{log}, checkpointed was {stop}")
    require(log.recovery_point <= log.log_end_offset, "offsets", f"{log}, recovery point {log.recovery_point}")


def _check_indexes(fs: FileSystem, log: UnifiedLog, base: int, batches: Sequence[tuple[int, Batch]]) -> None:
    following = [segment.base_offset for segment in log.segments if segment.base_offset > base]
    if following and following[0] <= log.log_start_offset:
        return  # all of it is deleted
    by_position = dict(batches)
    offsets = _rows(fs, base, INDEX_SUFFIX, _OFFSET_ROW, is_active=not following)
    last = -1
    for relative, position in offsets:
        batch = by_position.get(position)
        is_so = batch is not None and batch.last_offset == base + relative and position > 0 and relative > last
        require(is_so, "index", f"segment {base}: offset {base + relative} at {position}, of {offsets}; {batches}")
        last = relative
    times = _rows(fs, base, TIME_INDEX_SUFFIX, _TIME_ROW, is_active=not following)
    last_ms = -1
    for timestamp_ms, relative in times:
        first = next((batch for _, batch in batches if batch.max_timestamp_ms >= timestamp_ms), None)
        is_so = first is not None and (first.max_timestamp_ms, first.last_offset) == (timestamp_ms, base + relative)
        require(is_so and timestamp_ms > last_ms, "index", f"segment {base}: {timestamp_ms} at {relative}, {batches}")
        last_ms = timestamp_ms
    if following:
        newest = max((batch.max_timestamp_ms for _, batch in batches), default=-1)
        require(last_ms == newest, "index", f"segment {base}: the last time entry is {last_ms}, it should be {newest}")


def _rows(fs: FileSystem, base: int, suffix: str, row: struct.Struct, *, is_active: bool) -> list[tuple[int, ...]]:
    """The rows of an index; behind those of the active segment there are zeros."""
    path = join(DIRECTORY, file_name(base, suffix))
    if fs.stat(path) is None:
        return []
    content = read_whole(fs, path)
    require(len(content) % row.size == 0, "index", f"{path}: {len(content)} bytes")
    rows = list(row.iter_unpack(content))
    while is_active and rows and not any(rows[-1]):
        rows.pop()
    return rows


def _check_producers(fs: FileSystem, log: UnifiedLog, state: State) -> None:
    first = state.first_from(log.log_start_offset)
    whole = Producers(state.batches)
    replays = [whole]
    if first:
        replays += [Producers(state.batches[start:]) for start in range(1, first + 1)]
    least = replays[-1]
    held = {
        entry.producer_id: Known(
            entry.epoch, entry.coordinator_epoch, entry.last_timestamp_ms, entry.txn_first_offset,
            tuple(tuple(batch) for batch in entry.batches),
        )
        for entry in log.producers.producers.values()
    }  # fmt: skip
    for producer_id in {*held, *least.known}:
        wanted = [replay.known.get(producer_id) for replay in replays]
        is_so = any(_is_same(held.get(producer_id), one) for one in wanted)
        require(is_so, "producers", f"{producer_id}: {held.get(producer_id)}, by the batches {wanted[0]}")
    log.update_high_watermark(log.log_end_offset)
    stable = {max(min([*replay.open_txns(), log.log_end_offset]), log.log_start_offset) for replay in replays}
    require(log.last_stable_offset in stable, "producers", f"last stable {log.last_stable_offset}, not of {stable}")
    aborted: list[Aborted] = []
    for segment in log.segments:
        path = join(DIRECTORY, file_name(segment.base_offset, TXN_INDEX_SUFFIX))
        content = read_whole(fs, path) if fs.stat(path) is not None else b""
        require(len(content) % _TXN_ROW.size == 0, "aborted", f"{path}: {len(content)} bytes")
        aborted += [Aborted(*row[1:]) for row in _TXN_ROW.iter_unpack(content)]
    visible = [entry for entry in aborted if entry.last_offset >= log.log_start_offset]
    possible = {entry for replay in replays for entry in replay.aborted}
    required = [entry[::2] for entry in least.aborted if entry.last_offset >= log.log_start_offset]
    ends = [entry.last_offset for entry in visible]
    is_so = (
        possible.issuperset(visible) and ends == sorted(set(ends)) and {e[::2] for e in visible}.issuperset(required)
    )
    require(is_so, "aborted", f"{visible}, by the batches {whole.aborted}")


def _is_same(held: Known | None, wanted: Known | None) -> bool:
    """Whether a producer is known as it should be. Of its batches a snapshot keeps the last one, without its time."""
    if held is None or wanted is None:
        return held is wanted
    if held[:4] != wanted[:4] or bool(held.batches) != bool(wanted.batches):
        return False
    batches = wanted.batches[len(wanted.batches) - len(held.batches) :]
    return [batch[:3] for batch in held.batches] == [batch[:3] for batch in batches]


def _check_epochs(log: UnifiedLog, state: State, deleted_to: int) -> None:
    """Epochs of deleted batches are forgotten, also if the batches come back because no checkpoint knows of it."""
    entries = log.leader_epochs.entries
    for entry, following in zip(entries, entries[1:], strict=False):
        is_so = entry.epoch < following.epoch and entry.start_offset < following.start_offset
        require(is_so, "epochs", entries)
    require(all(entry.start_offset <= log.log_end_offset for entry in entries), "epochs", f"{log}: {entries}")
    start = max(log.log_start_offset, deleted_to)
    for batch in state.batches[state.first_from(start) :]:
        epoch = log.leader_epochs.epoch_for_offset(max(batch.base_offset, start))
        require(epoch == batch.leader_epoch, "epochs", f"{batch} is of {batch.leader_epoch}, by the cache of {epoch}")


# -- once more ---------------------------------------------------------------------------------------------------------


def files_of(fs: FileSystem, log: UnifiedLog) -> dict[str, bytes]:
    """The files of the partition, but for those that wait to be deleted, and for what is preallocated.

    The epochs of a log that is empty but for deleted batches come and go with each start, as in Kafka: start-up finds
    the one of the deleted batches, moves it to the log start, and the next one drops it there, at the log end.
    """
    active = log.active_segment
    files = {name: read_whole(fs, join(DIRECTORY, name)) for name in fs.list(DIRECTORY) if not name.endswith(DELETED)}
    name = file_name(active.base_offset, LOG_SUFFIX)
    files[name] = files[name][: active.size]
    if log.log_start_offset == log.log_end_offset:
        files[LEADER_EPOCH_CHECKPOINT] = b""
    return files


def _facts(log: UnifiedLog) -> tuple[object, ...]:
    return (
        log.log_start_offset, log.log_end_offset, log.recovery_point,
        [segment.base_offset for segment in log.segments], log.producers.active_producers(),
    )  # fmt: skip


def _check_again(
    fs: FileSystem, found: Found, expected: Expectation, stop: Stop, config: LogConfig, clock: ManualClock
) -> None:
    """Recover the result, unclean again.

    The one that follows a clean opening is the first to be repeated. So is the one behind a first opening if batches
    were deleted: a snapshot at the log start itself goes, as in Kafka, and with it what only it knew; and the epochs of
    batches that are back are found once a later one, beyond the log end, is out of the way.
    """
    log = found.log
    unclean = stop._replace(is_clean=False)
    spared = int(stop.is_clean or found.state.first_from(max(log.log_start_offset, expected.deleted_to)) > 0)
    for number in range(1 + spared):
        before, facts = files_of(fs, log), _facts(log)
        log.release()
        try:
            log = open_log(fs, unclean, config, clock)
        except TidelogError as error:
            raise Broken("again", f"{type(error).__name__}: {error}") from error
        after = files_of(fs, log)
        if number == spared:
            changed = {
                name: (before.get(name, b"").hex(), after.get(name, b"").hex())
                for name in {*before, *after}
                if before.get(name) != after.get(name)
            }
            require(not changed, "again", f"{changed}")
            require(_facts(log) == facts, "again", f"{facts} became {_facts(log)}")
    object.__setattr__(found, "log", log)


def _check_use(fs: FileSystem, found: Found, expected: Expectation, config: LogConfig, clock: ManualClock) -> None:
    """Read, append, roll, close, open cleanly. The log that was found is closed behind this."""
    log, state = found.log, found.state
    try:
        visible = state.batches[state.first_from(log.log_start_offset) :]
        for batch in visible:
            offset = max(batch.last_offset, log.log_start_offset)
            data = log.read(offset, 1, Isolation.LOG_END).read()
            require(data == batch.data, "use", f"a read of {offset} gives {data.hex()}, not {batch}")
        epoch = log.latest_epoch or 0
        for number in range(3):
            data = bytes(build_batch([NewRecord(b"k", b"after", clock.now_ms())]))
            state = state.appended([stamped(data, log.log_end_offset, epoch)])
            log.append_as_leader(memoryview(bytearray(data)), epoch)
            if number == 1:
                log.roll()
        log.close()
        again = open_log(fs, Stop(0, log.log_start_offset, is_clean=True), config, clock)
        deleted_to = max(log.log_start_offset, expected.deleted_to)
        opened = State(state.batches, deleted_to, state.end, state.origin)
        stop = Stop(0, log.log_start_offset, is_clean=True)
        check(fs, again, stop, Expectation((opened,), state.end, None, None, 0, deleted_to))
        again.release()
    except Broken as broken:
        raise Broken("use", str(broken)) from broken
    except TidelogError as error:
        raise Broken("use", f"{type(error).__name__}: {error}") from error
