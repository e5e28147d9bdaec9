"""The plan of a lookup: the path that the documents draw, and the answers that Kafka gave."""

import json
import struct
from pathlib import Path

import pytest

import tidelog
from tests.golden.corpus import RELEASE, case, facts
from tests.log.compaction.compacting import a_compacted_log, compact, put, settle
from tests.log.logs import NOW, a_log, batch, lead
from tidelog.errors import InvalidRequestError, OffsetOutOfRangeError, UnsupportedError
from tidelog.records import NewRecord
from tidelog.view import PartitionView
from tidelog.view.explain import Explanation, PlanStep
from tidelog.view.files import ReadOnlyFiles

LOOKUPS = f"{RELEASE}/7-lookups"
IS_COMMITTED = {"read_uncommitted": False, "read_committed": True}


@pytest.fixture(scope="module")
def walkthrough() -> PartitionView:
    (view,) = tidelog.open(case("seed-walkthrough") / "client-0.10.2.2" / "step6-after-clean-stop" / "log-format-1")
    return view


def steps(plan: Explanation, name: str) -> list[PlanStep]:
    return [step for step in plan.steps if step.name == name]


def test_offset_90_is_found_through_the_entry_of_80_at_position_4384(walkthrough: PartitionView) -> None:
    assert (
        str(walkthrough.explain(offset=90))
        == """\
log-format-1, offset 90
  segment     00000000000000000000.log, the last of 3 with a base offset <= 90
  index       entry 0 of 1, byte 0 of 00000000000000000000.index
                offset 80 at position 4384
  walk        1 batch, 659 bytes from position 4384
                position 4384: offsets 80 to 92, 659 bytes
  record      offset 90, time 2026-11-15T19:37:30.047Z, 2 bytes of key,
                37 bytes of value
  read        16 bytes of .index in 2 reads; 1318 bytes of .log in 2 reads"""
    )


def test_offset_15_lies_before_the_only_entry_and_is_walked_to_from_position_0(walkthrough: PartitionView) -> None:
    plan = walkthrough.explain(offset=15)
    assert (
        str(plan)
        == """\
log-format-1, offset 15
  segment     00000000000000000000.log, the last of 3 with a base offset <= 15
  index       no entry at or before the target, the first of 1 is 80
                from position 0
  walk        7 batches, 1375 bytes from position 0
                position 0: offset 0, 106 bytes
                position 106: offset 1, 106 bytes
                position 212: offset 2, 106 bytes
                position 318: offset 3, 106 bytes
                position 424: offset 4, 106 bytes
                position 530: offsets 5 to 7, 196 bytes
                position 726: offsets 8 to 20, 649 bytes
  record      offset 15, time 2026-11-15T19:37:25.002Z, 1 byte of key,
                37 bytes of value
  read        8 bytes of .index in 1 read; 5692 bytes of .log in 2 reads"""
    )
    assert plan.record is not None
    assert plan.record.offset == 15


def test_a_plan_for_programs_has_the_same_steps(walkthrough: PartitionView) -> None:
    plan = json.loads(json.dumps(walkthrough.explain(offset=90).to_dict()))
    assert plan["answer"] == {"timestamp_ms": 1794771450047, "offset": 90, "leader_epoch": 1}
    assert [step["step"] for step in plan["steps"]] == ["segment", "index", "walk", "record", "read"]
    assert plan["steps"][1] == {
        "step": "index", "offset": 80, "position": 4384, "entry": 0, "entries": 1, "byte": 0,
        "file": "00000000000000000000.index",
    }  # fmt: skip
    assert plan["steps"][2]["batches"][0]["first_offset"] == 80


@pytest.mark.parametrize("topic", list(facts(LOOKUPS, "lookups.json")))
def test_every_lookup_that_is_explained_ends_in_the_answer_that_kafka_gave(topic: str) -> None:
    view = tidelog.open(case(LOOKUPS) / "image")[topic, 0]
    about = facts(LOOKUPS, "lookups.json")[topic]
    for level, rows in about["list_offsets"].items():
        for time, error, *answer in rows:
            if error:
                with pytest.raises(UnsupportedError) as raised:
                    view.explain(time=time, committed=IS_COMMITTED[level], end_bound="highWatermark")
                assert raised.value.error_code == error
                continue
            plan = view.explain(time=time, committed=IS_COMMITTED[level], end_bound="highWatermark")
            found = plan.answer
            epoch = -1 if found is None or found.leader_epoch is None else found.leader_epoch
            assert answer == ([-1, -1, -1] if found is None else [found.timestamp_ms, found.offset, epoch])
            assert plan.answer == view.offset_for_time(time, committed=IS_COMMITTED[level], end_bound="highWatermark")
            if found is not None and time >= 0:
                assert len(steps(plan, "segment")) == 1
                assert steps(plan, "walk")
                (last,) = steps(plan, "records")[-1:]
                assert last.facts["first_offset"] <= found.offset <= last.facts["last_offset"]
                assert steps(plan, "answer")[0].facts["offset"] == found.offset


@pytest.mark.parametrize("topic", ["look-a", "look-b", "look-c"])
def test_the_entries_named_are_those_of_the_files(topic: str) -> None:
    view = tidelog.open(case(LOOKUPS) / "image")[topic, 0]
    used = 0
    for offset in range(view.log_start_offset, view.log_end_offset):
        for step in steps(view.explain(offset=offset), "index"):
            if step.facts["byte"] is not None:
                data = (Path(view.path) / step.facts["file"]).read_bytes()
                row = data[step.facts["byte"] : step.facts["byte"] + 8]
                base = int(step.facts["file"].partition(".")[0])
                assert base + int.from_bytes(row[:4], "big") == step.facts["offset"] <= offset
                assert int.from_bytes(row[4:], "big") == step.facts["position"]
                used += 1
    assert used > 20


def test_a_time_index_entry_that_is_used_is_named() -> None:
    view = tidelog.open(case(LOOKUPS) / "image")["look-a", 0]
    used = 0
    for record in view.read():
        plan = view.explain(time=record.timestamp_ms)
        for step in steps(plan, "time index"):
            data = (Path(view.path) / step.facts["file"]).read_bytes()[step.facts["byte"] :]
            assert int.from_bytes(data[:8], "big") == step.facts["timestamp_ms"] <= record.timestamp_ms
            used += 1
    assert used > 5


def test_an_offset_that_compaction_removed_leads_to_the_next_record(tmp_path: Path) -> None:
    log = a_compacted_log(tmp_path, segment_bytes=300)
    for number in range(12):
        put(log, number % 2)
    log.roll()
    put(log, 5)
    compact(log)
    settle(log)
    view = PartitionView.at(ReadOnlyFiles(), log.directory)
    offsets = [record.offset for record in view.read()]
    assert offsets[0] > 3
    plan = view.explain(offset=3)
    assert plan.record is not None
    assert plan.record.offset == offsets[0]
    assert "offset 3 was compacted away" in str(plan)


def test_a_wrong_index_is_told_and_not_used(tmp_path: Path) -> None:
    log = a_log(tmp_path, index_interval_bytes=50)
    for number in range(5):
        lead(log, batch(1, timestamp_ms=NOW + number))
    log.close()
    (tmp_path / "topic-0" / "00000000000000000000.index").write_bytes(bytes.fromhex("00000001 00000007"))
    view = PartitionView.at(ReadOnlyFiles(), str(tmp_path / "topic-0"))
    plan = view.explain(offset=3)
    (wrong,) = steps(plan, "wrong index")
    assert "the index says offset 1 is at position 7, the log does not: it is not used" in wrong.text
    assert plan.record is not None


def test_what_cannot_be_explained_is_said(walkthrough: PartitionView) -> None:
    for wrong in ({}, {"offset": 1, "time": 2}):
        with pytest.raises(InvalidRequestError, match="explain takes an offset or a time"):
            walkthrough.explain(**wrong)  # type: ignore[arg-type]
    with pytest.raises(OffsetOutOfRangeError, match="log-format-1 has the offsets 0 to 227, not 228"):
        walkthrough.explain(offset=228)
    with pytest.raises(UnsupportedError, match="the time -7 has no meaning"):
        walkthrough.explain(time=-7)


def test_a_long_walk_is_shortened_for_people_and_not_for_programs(tmp_path: Path) -> None:
    log = a_log(tmp_path, index_interval_bytes=1 << 20)
    for _ in range(40):
        lead(log, 1)
    plan = PartitionView.at(ReadOnlyFiles(), log.directory).explain(offset=39)
    assert "... 28 more ..." in str(plan)
    assert len(plan.to_dict()["steps"][2]["batches"]) == 40


def test_what_compaction_left_is_looked_for_in_the_same_segment_first() -> None:
    """Of the batch that reaches offset 50 only record 49 is left; the next record is in a batch behind it."""
    partition = tidelog.open(case("kafka-4.3/5-compaction") / "3-after")["k-gzip", 0]
    for offset in range(partition.log_start_offset, partition.log_end_offset):
        answer = partition.explain(offset=offset).answer
        assert answer is not None
        assert answer.offset == next(iter(partition.read(offset))).offset
    plan = str(partition.explain(offset=50))
    assert "walk on" in plan
    assert plan.count("segment ") == 1


def test_an_entry_that_proves_no_offset_is_explained_with_the_one_before_it(tmp_path: Path) -> None:
    """Kafka 1.1 to 4.2 noted the last offset of an append beside the position of its first batch."""
    directory = tmp_path / "topic-0"
    directory.mkdir()
    batches = [bytes(batch([NewRecord(None, b"v", NOW)], base_offset=offset)) for offset in range(12)]
    size = len(batches[0])
    (directory / f"{0:020}.log").write_bytes(b"".join(batches))
    (directory / f"{0:020}.index").write_bytes(struct.pack(">iiii", 5, 3 * size, 8, 6 * size))
    plan = tidelog.open(tmp_path)["topic", 0].explain(offset=8)
    assert [step.facts["offset"] for step in steps(plan, "index")] == [8, 5]
    (walk,) = steps(plan, "walk")
    assert walk.facts["position"] == 3 * size
