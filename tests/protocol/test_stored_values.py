"""Values of messages that lie in logs: doubles, and the control records of the metadata quorum."""

import math

import pytest

from tests.behaviours import behaviour
from tidelog import protocol
from tidelog.records import RecordBatch, read_batches
from tidelog.records.control import ControlType, build_control_batch


@behaviour("REC-009")
@pytest.mark.parametrize(
    ("value", "bytes_"), [(1.0, "3ff0000000000000"), (-0.0, "8000000000000000"), (math.nan, "7ff8000000000000")]
)
def test_a_double_is_eight_bytes_of_ieee_754(value: float, bytes_: str) -> None:
    quota = protocol.message("ClientQuotaRecord")
    written = quota.write(quota.new(key="k", value=value), 0)
    assert bytes.fromhex(bytes_) in written
    assert repr(quota.read(written, 0).value) == repr(value)


@behaviour("REC-060")
@behaviour("REC-116")
def test_a_leader_change_goes_into_a_control_batch_and_comes_out_of_it() -> None:
    message = protocol.message("LeaderChangeMessage")
    change = message.new(leader_id=3, voters=[{"voter_id": 1}, {"voter_id": 3}], granting_voters=[{"voter_id": 3}])
    value = message.write(change, 0)
    control = [(ControlType.LEADER_CHANGE, value)]
    (batch,) = read_batches(build_control_batch(control, timestamp_ms=1_700_000_000_000, partition_leader_epoch=7))
    (record,) = batch
    assert isinstance(batch, RecordBatch)
    assert ControlType.parse(record.key) is ControlType.LEADER_CHANGE
    found = message.read(record.value, 0)
    assert (found.version, found.leader_id, [voter.voter_id for voter in found.voters]) == (0, 3, [1, 3])
    assert batch.partition_leader_epoch == 7
