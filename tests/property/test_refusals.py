"""Any call of a workload is refused, and the step is tried again on the live log.

A sample; `make campaign` refuses thousands of calls.
"""

import errno

import pytest

from tests.property import refusals
from tests.property.crash_steps import scripted_workloads
from tests.property.refusing_disk import Refusal

SCRIPTS = scripted_workloads()
EVERY = 61  # of the calls of a scripted workload one is refused


@pytest.mark.parametrize("name", [name for name in SCRIPTS if not any(s[0] == "crash" for s in SCRIPTS[name].steps)])
def test_a_scripted_workload_loses_and_repeats_nothing_when_a_call_is_refused(name: str) -> None:
    for refusal in refusals.refusals_of(SCRIPTS[name])[::EVERY]:
        refusals.refuse(SCRIPTS[name], refusal)


@pytest.mark.parametrize("seed", [201, 202])
def test_random_workloads_lose_and_repeat_nothing_when_a_call_is_refused(seed: int) -> None:
    done = refusals.run(seed, 70)
    assert done["online"] > 0
    assert done["offline"] > 0


def test_a_process_without_descriptors_goes_on_when_it_has_some_again() -> None:
    outcomes = [
        refusals.refuse(SCRIPTS["rolls by size"], Refusal(errno.EMFILE, number, is_lasting)).outcomes["online"]
        for number in range(1, 80, 8)
        for is_lasting in (False, True)
    ]
    assert sum(outcomes) > len(outcomes) // 2
