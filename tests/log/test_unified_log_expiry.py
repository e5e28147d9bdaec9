"""Producers that fall silent are forgotten by the log's own schedule."""

from pathlib import Path

from tests.behaviours import behaviour
from tests.log.logs import a_log, clock_of, last_sequences, lead, of_producer


@behaviour("LOG-046")
def test_every_check_forgets_the_producers_whose_time_is_over(tmp_path: Path) -> None:
    log = a_log(tmp_path, producer_id_expiration_ms=200, producer_id_expiration_check_interval_ms=100)
    lead(log, of_producer(23, 0))
    clock_of(log).advance(100)
    log.tick()
    assert last_sequences(log) == {23: 0}
    clock_of(log).advance(100)
    assert last_sequences(log) == {23: 0}  # nothing happens between two heartbeats
    log.tick()
    assert last_sequences(log) == {}


@behaviour("LOG-031")
def test_a_deleted_log_is_not_checked_any_more(tmp_path: Path) -> None:
    log = a_log(tmp_path, producer_id_expiration_ms=200, producer_id_expiration_check_interval_ms=100)
    schedule = log.local.schedule
    clock_of(log).advance(100)
    log.tick()
    assert len(schedule) == 1  # the next check
    log.delete()
    clock_of(log).advance(100)
    schedule.run_due()
    assert len(schedule) == 0
