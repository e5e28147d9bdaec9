"""Any call of a LogManager's work is refused, and the work is tried again.

A sample; `make campaign` refuses thousands of calls.
"""

import errno

import pytest

from tests.property import manager_refusals
from tests.property.refusing_disk import Refusal

# Every kind of step, in an order in which each has something to do.
EVERYTHING = manager_refusals.Workload(
    [
        ["create", 0, 0], ["append", 0, 1], ["append", 0, 1], ["lead", 0], ["append", 0, 1], ["create", 1, 1],
        ["copy", 0], ["roll", 0], ["append", 0, 1], ["append", 1, 1], ["move", 0], ["append", 0, 1], ["flush", 0],
        ["checkpoint"], ["truncate", 0, 1], ["append", 0, 1], ["trim", 0, 1], ["retain"], ["tick", 61],
        ["begin", 1, 3], ["append", 1, 1], ["stop"], ["append", 0, 1], ["delete", 0], ["tick", 400], ["create", 0, 1],
        ["append", 0, 1], ["kill"],
    ],
    "everything",
)  # fmt: skip


def test_work_of_every_kind_loses_and_repeats_nothing_when_a_call_is_refused() -> None:
    for refusal in manager_refusals.refusals_of(EVERYTHING)[::97]:
        manager_refusals.refuse(EVERYTHING, refusal)


@pytest.mark.parametrize("number", range(3, 240, 24))
def test_work_of_every_kind_goes_on_when_a_process_has_descriptors_again(number: int) -> None:
    manager_refusals.refuse(EVERYTHING, Refusal(errno.EMFILE, number, is_lasting=True))


def test_random_work_loses_and_repeats_nothing_when_a_call_is_refused() -> None:
    done = manager_refusals.run(301, 40)
    assert done["online"] > 0
    assert done["offline"] > 0
