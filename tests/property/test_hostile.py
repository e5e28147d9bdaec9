"""Damaged batches under checksums that hold: both ways of reading say the same, and nothing else ever happens.

A sample; `make campaign` runs millions.
"""

import random

import pytest

from tests.property import hostile
from tests.property.guard_pages import Guarded
from tidelog.records import NewRecord, build_batch

SEEDS = (1, 2, 3, 4)
CASES = 2_000


@pytest.mark.parametrize("seed", SEEDS)
def test_both_ways_of_reading_agree_on_damaged_batches(seed: int) -> None:
    outcomes = hostile.run(seed, CASES)
    assert outcomes.total() == CASES
    assert outcomes["rows"] > CASES // 10  # some damage is harmless,
    assert outcomes["InvalidRecordError"] > CASES // 5  # much is found while records are read,
    assert outcomes["DecompressionError"] > CASES // 50  # some breaks a stream,
    assert outcomes["CorruptRecordError"] > 0  # and some a length


def test_a_case_depends_on_seed_and_number_alone() -> None:
    first, second = hostile.Cases(5), hostile.Cases(5)
    numbers = list(range(50))
    cases = [first[number] for number in numbers]
    random.Random(1).shuffle(numbers)
    assert {number: second[number] for number in numbers} == dict(enumerate(cases))
    assert cases != [hostile.Cases(6)[number] for number in range(50)]


def test_a_sound_batch_is_judged_to_be_rows() -> None:
    assert hostile.judge(bytes(build_batch([NewRecord(b"k", b"v", 5)]))) == "rows"


def test_a_disagreement_names_what_is_needed_to_see_it_again() -> None:
    disagreement = hostile.Disagreement("columns rows, records CorruptRecordError", b"\x07\xff", seed=3, case=41)
    assert str(disagreement) == ("seed 3, case 41: columns rows, records CorruptRecordError\n  bytes.fromhex('07ff')")


def test_guarded_memory_ends_where_it_says() -> None:
    memory = Guarded(100)
    assert memory.end - memory.first == memory.room >= 100
    assert memory.put(b"tide") == b"tide" == memory.at_end(4)
    assert memory.put(b"log", at_start=True) == b"log" == memory.at_start(3)
