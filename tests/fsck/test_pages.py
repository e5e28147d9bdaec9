"""A seeded sample of the campaign of page damage; `make campaign` runs it at full size."""

import pytest

from tests.fsck.pages import DEEDS, judge, proven
from tidelog.records import NewRecord, build_batch

SAMPLE = (*range(18), 32, 98, 130, 374, 1428, 1528, 1928, 1946, 2818, 3162, 3106, 60110, 70793, 91195, 91284, 91428)


@pytest.mark.parametrize("number", SAMPLE)
def test_a_repair_loses_no_batch_that_a_search_of_every_position_proves(number: int) -> None:
    assert judge(number) == DEEDS[number % len(DEEDS)].__name__


def test_the_search_proves_a_batch_by_its_length_or_by_what_follows_it() -> None:
    one, two = (bytes(build_batch([NewRecord(b"k", value)])) for value in (b"one", b"two"))
    damaged = one[:8] + b"\xff" + one[9:]
    assert proven(b"\x07" + damaged + two) == {one[17:], two[17:]}
