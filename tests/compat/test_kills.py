"""Apache Kafka opens what killed processes of ours have left. A sample of the campaign `kills-kafka`."""

import pytest

from tests.compat.killed_processes import Left, kill_many

KILLS = 10
SEED = 16


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> list[Left]:
    return kill_many(SEED, range(KILLS), tmp_path_factory.mktemp("kills"))


def test_there_is_something_in_most_of_what_was_left(left: list[Left]) -> None:
    assert len(left) > KILLS
    assert sum(bool(one.ours.records) for one in left) > KILLS


def test_the_broker_serves_every_batch_that_had_been_acknowledged(left: list[Left]) -> None:
    for one in left:
        assert not one.ends or one.theirs.end in one.ends, one.partition


def test_the_broker_serves_what_we_serve(left: list[Left]) -> None:
    for one in left:
        assert (one.their_start, one.theirs) == (one.start, one.ours), one.partition


def test_the_broker_knows_what_is_committed_as_we_do(left: list[Left]) -> None:
    for one in left:
        assert one.theirs_committed == one.committed, one.partition
        assert one.fault() is None


def test_a_log_that_is_read_otherwise_is_a_fault(left: list[Left]) -> None:
    one = next(one for one in left if one.ours.records)
    theirs = one.theirs
    one.theirs = theirs._replace(records=theirs.records[1:])
    assert "we serve" in str(one.fault())
    one.theirs = theirs
