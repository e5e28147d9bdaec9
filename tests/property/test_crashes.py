"""The power goes at every call of many workloads, and what is left of the log is judged.

A sample; `make campaign` cuts more than 20,000 times.
"""

import json
import re
from random import Random

import pytest

from tests.property import crashes
from tests.property.crash_disk import WatchedDisk, WatchedFile
from tests.property.crash_judge import Expectation, Stop, judge, open_log
from tests.property.crash_model import Known, Producers, State, batch_of, stamped
from tests.property.crash_run import Run
from tests.property.crash_steps import Workload, random_workload, scripted_workloads
from tidelog.log.files import Creation, WriteFile
from tidelog.records import ControlType, EndTxnMarker, NewRecord, build_batch, build_end_txn_marker

SCRIPTS = scripted_workloads()
SEEDS = (101, 102, 103, 104)
CUTS = 1_200


@pytest.mark.parametrize("name", SCRIPTS)
def test_whatever_a_crash_leaves_of_a_scripted_workload_is_recovered(name: str) -> None:
    assert crashes.cut_everywhere(SCRIPTS[name], variants=2) > 50


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_a_crash_leaves_of_random_workloads_is_recovered(seed: int) -> None:
    assert crashes.run(seed, CUTS)["cuts"] >= CUTS


@pytest.mark.parametrize("name", ["rolls by size", "truncation of whole segments", "clean stops", "a log begun anew"])
def test_the_engine_does_nothing_more_once_the_power_is_gone(name: str) -> None:
    last = crashes.cut_at(SCRIPTS[name], cut=-1).cuts
    for cut in range(1, last, 9):
        assert crashes.cut_at(SCRIPTS[name], cut).cuts <= cut + 1  # a close that is done counts without a call


def test_a_recovery_that_is_cut_itself_leaves_no_hole_and_nothing_comes_back_behind_it() -> None:
    """Damage in the middle, as a log of Apache Kafka can have it after a crash: what follows goes, for good."""
    settings = {**SCRIPTS["rolls by size"].settings, "segment_bytes": 500}
    run = Run(Workload(settings, [["produce", 1, 1]] * 24, "damage"), lambda _: None)
    run.run()
    run.log.release()
    written, damaged = run.expectation().states[0], run.log.segments[2]
    lost = written.first_from(damaged.base_offset) + 1  # the second batch of that segment, and all behind it
    disk = run.disk.copy()
    disk.open_write(damaged.log.path).write_at(len(written.batches[lost - 1].data) + 70, b"?" * 8)
    disk.sync_all()
    floor = written.batches[lost - 1].end
    states: tuple[State, ...] = (written,)
    cuts = 0

    def on_change() -> None:
        nonlocal cuts
        cuts += 1
        expected = Expectation(states, floor, Stop(), None, 0, 0)
        for variant in range(6):
            rng = Random(f"{cuts} {variant}")
            judge(disk.after_crash(rng), expected, run.config, run.clock.now_ms(), rng)

    log = open_log(WatchedDisk(disk, on_change), Stop(), run.config, run.clock)
    assert log.log_end_offset == floor
    states = (written._replace(batches=written.batches[:lost], end=floor),)
    for old in written.batches[lost:]:  # others of the same size: the old ones would fit behind each of them
        value = bytes(len(old.data) - len(build_batch([NewRecord(b"k", b"")])))
        new = stamped(bytes(build_batch([NewRecord(b"k", value, run.clock.now_ms())])), log.log_end_offset, 0)
        assert len(new.data) == len(old.data)
        states = (states[-1].appended([new]),)
        log.append_as_follower(memoryview(bytearray(new.data)))
    assert cuts > 60


class _LyingFile(WatchedFile):
    """A file that says it was synced, and was not."""

    __slots__ = ()

    def sync(self) -> None:
        pass


class _LyingDisk(WatchedDisk):
    """A disk whose cache answers for it."""

    def open_write(self, path: str, *, create: Creation = True) -> WriteFile:
        file = _LyingFile(self.disk.open_write(path, create=create), self)
        self.look()
        return file


def test_a_disk_that_lies_about_its_cache_is_found_out_with_a_few_steps_and_the_line_to_see_it_again() -> None:
    with pytest.raises(crashes.Failure) as failed:
        crashes.cut_everywhere(SCRIPTS["transactions"], watched=_LyingDisk)
    smallest = crashes.shrunk(failed.value, watched=_LyingDisk)
    assert smallest.kind == failed.value.kind
    assert len(smallest.workload.steps) <= min(4, len(failed.value.workload.steps))
    command = re.search(r"python -m tests\.property\.crashes '(.*)'", str(smallest))
    assert command is not None
    case = json.loads(command[1])
    assert (case["steps"], case["cut"]) == (smallest.workload.steps, smallest.cut)
    assert "wrong" not in crashes.replay(case)  # on an honest disk it is none


def test_a_workload_depends_on_seed_and_number_alone() -> None:
    assert random_workload(5, 7) == random_workload(5, 7)
    assert random_workload(5, 7) != random_workload(5, 8)
    assert random_workload(5, 7) != random_workload(6, 7)


@pytest.mark.parametrize("seed", [3, 4])  # they have failed, in truncations of several segments and in deletions
def test_what_a_crash_leaves_is_recovered_on_a_disk_that_keeps_no_order_among_directory_changes(seed: int) -> None:
    assert crashes.run_in_disorder(seed, 500)["disorder-cuts"] >= 500


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_scripted_workload_is_recovered_on_a_disk_that_keeps_no_order_among_directory_changes(name: str) -> None:
    assert crashes.cut_everywhere(scripted_workloads(unordered=True)[name]) > 25


# -- the model ---------------------------------------------------------------------------------------------------------


def _data(offset: int, producer_id: int, sequence: int, records: int = 1, *, is_transactional: bool = True) -> bytes:
    new = [NewRecord(b"k", b"v", 5)] * records
    return bytes(
        build_batch(
            new, base_offset=offset, producer_id=producer_id, producer_epoch=0, base_sequence=sequence,
            is_transactional=is_transactional,
        )
    )  # fmt: skip


def _marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
    marker = EndTxnMarker(kind, coordinator_epoch=3)
    return bytes(build_end_txn_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=9, offset=offset))


def test_the_model_follows_transactions() -> None:
    written = [
        _data(0, 11, 0, 2), _data(2, 12, 0), _marker(3, 11, ControlType.ABORT), _marker(4, 12, ControlType.COMMIT),
    ]  # fmt: skip
    producers = Producers([batch_of(data) for data in written[:2]])
    assert producers.open_txns() == [0, 2]
    producers.add(batch_of(written[2]))
    assert producers.aborted == [(11, 0, 3, 2)]  # the other one is open and holds readers back
    producers.add(batch_of(written[3]))
    assert producers.open_txns() == []
    assert producers.aborted == [(11, 0, 3, 2)]
    assert producers.known[11] == Known(0, 3, 9, None, ((1, 1, 1, 5),))


def test_the_model_cuts_whole_batches() -> None:
    state = State().appended([batch_of(_data(0, 1, 0, 3)), batch_of(_data(3, 1, 3, 3))])
    assert (state.end, len(state.batches)) == (6, 2)
    cut = state.cut(4)
    assert (cut.end, [batch.last_offset for batch in cut.batches]) == (4, [2])
    assert [cut.first_from(offset) for offset in (0, 2, 3)] == [0, 0, 1]
