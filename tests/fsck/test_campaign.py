"""A seeded sample of the damage campaign; `make campaign` runs it at full size."""

import pytest

from tests.fsck.campaign import LEFT_TO_PEOPLE, judge, sound_view
from tests.fsck.damages import DEEDS, KINDS, damage_of
from tests.fsck.reader import Refused
from tests.fsck.world import PARTITIONS, ROOT, world
from tidelog.fsck import CODES, check

SAMPLE = (*range(26), 29, 41, 99, 193, 233, 431, 1013, 1215, 1283, 2050)


def test_the_sound_world_is_clean_and_can_be_read() -> None:
    assert check(ROOT, deep=True, fs=world()).codes() == set()
    for partition in PARTITIONS:
        assert not [answer for answer in sound_view(partition).values() if isinstance(answer, Refused)]


def test_every_kind_of_file_meets_every_kind_of_damage() -> None:
    met = {(case.kind, case.deed) for case in (damage_of(number)[0] for number in range(2 * len(KINDS) * len(DEEDS)))}
    assert met == {(kind, deed.__name__) for kind in KINDS for deed in DEEDS}


def test_what_is_left_to_people_are_codes() -> None:
    assert CODES.keys() > LEFT_TO_PEOPLE


@pytest.mark.parametrize("number", SAMPLE)
def test_damage_is_found_and_mended(number: int) -> None:
    judge(number)
