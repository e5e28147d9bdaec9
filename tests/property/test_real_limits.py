"""A process out of descriptors and a file system that is full. A sample; `make campaign` has more."""

import pytest

from tests.property import real_limits
from tests.property.real_limits import Limit
from tests.property.test_manager_refusals import EVERYTHING


@pytest.fixture(scope="module")
def homes():  # type: ignore[no-untyped-def]
    with real_limits.homes() as found:
        yield found


@pytest.mark.parametrize("left", [0, 2, 5])
@pytest.mark.parametrize("step", [2, 7, 11, 15, 24])
def test_work_goes_on_when_a_process_has_descriptors_again(homes, left: int, step: int) -> None:  # type: ignore[no-untyped-def]
    real_limits.judge(EVERYTHING, Limit("descriptors", step, left), homes["descriptors"])


@pytest.mark.parametrize("step", [2, 8, 11, 14, 16, 20])
def test_work_goes_on_when_a_file_system_has_room_again(homes, step: int) -> None:  # type: ignore[no-untyped-def]
    if "bytes" not in homes:
        pytest.skip("needs the right to mount a small file system")
    assert real_limits.judge(EVERYTHING, Limit("bytes", step, 0), homes["bytes"]).outcomes.total() == 1
