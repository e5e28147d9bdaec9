"""A LogManager loses power, or is killed, at random calls of random work. A sample; `make campaign` does thousands."""

import json
import re
from collections.abc import Iterator

import pytest

from tests.property import manager_crashes
from tests.property.manager_model import LogModel
from tests.property.manager_run import random_workload
from tidelog.log.compaction import cleaner
from tidelog.records import ControlType, NewRecord, build_batch, build_end_txn_marker
from tidelog.records.control import EndTxnMarker


@pytest.mark.parametrize("seed", [1, 3])
def test_whatever_a_cut_leaves_of_the_logs_of_a_manager_is_right(seed: int) -> None:
    assert manager_crashes.run(seed, 60)["manager-cuts"] >= 60


def test_compaction_that_relies_on_what_is_not_flushed_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_flush(_round: object, _end: int) -> Iterator[None]:
        return iter(())

    monkeypatch.setattr(cleaner._Round, "_flush", no_flush)
    with pytest.raises(manager_crashes.Failure) as failed:
        manager_crashes.cut_at_some(random_workload(3, 0))
    assert failed.value.kind == "committed"
    monkeypatch.undo()
    case = re.search(r"manager_crashes '(.*)'", str(failed.value))
    assert case is not None
    assert "committed" not in manager_crashes.replay(json.loads(case[1]))


def test_a_workload_depends_on_seed_and_number_alone() -> None:
    assert random_workload(5, 7) == random_workload(5, 7)
    assert random_workload(5, 7) != random_workload(5, 8)


def _data(key: bytes, value: bytes | None, producer_id: int = -1) -> bytearray:
    is_txn = producer_id >= 0
    return build_batch(
        [NewRecord(key, value, 5)], producer_id=producer_id, producer_epoch=0 if is_txn else -1,
        base_sequence=0 if is_txn else -1, is_transactional=is_txn,
    )  # fmt: skip


def test_the_model_knows_what_is_committed_at_any_end() -> None:
    model = LogModel().appended(_data(b"a", b"1")).appended(_data(b"a", b"2", 7))
    marker = EndTxnMarker(ControlType.COMMIT, 0)
    model = model.appended(build_end_txn_marker(marker, producer_id=7, producer_epoch=0, timestamp_ms=9))
    assert model.end == 3
    assert model.open_txns(2) == {7: 1}
    assert model.open_txns(3) == {}
    assert model.latest(0, 3, {})[b"a"].value == b"2"
    assert model.latest(0, 2, {7: ControlType.ABORT})[b"a"].value == b"1"
    assert model.visible(1, 2, {7: ControlType.ABORT}) == []
    assert model.producers(3) == {7: (0, 1)}
