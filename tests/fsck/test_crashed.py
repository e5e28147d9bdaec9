"""A seeded sample of the campaign of crashes; `make campaign` runs it at full size."""

import pytest

from tests.fsck.crashed import judge


@pytest.mark.parametrize("number", [0, 1, 2, 3, 13, 90, 91, 93, 371, 70169, 80115, 80127, 120172, 140279, 180027])
def test_what_a_kill_or_a_loss_of_power_leaves_of_sound_logs_is_no_damage(number: int) -> None:
    assert judge(number) == ("power" if number % 2 else "kill")
