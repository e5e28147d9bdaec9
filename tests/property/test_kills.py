"""Processes that work on real directories are killed with kill -9. A sample; `make campaign` kills 500."""

from tests.property import kills


def test_what_a_killed_process_leaves_has_every_batch_that_was_acknowledged() -> None:
    assert kills.run(1, 5)["kills"] == 5
