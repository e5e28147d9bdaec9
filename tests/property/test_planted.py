"""A seeded sample of what can be planted in a log directory; `make campaign` plants more."""

import pytest

from tests.property.planted import COMMANDS, IS_ROOT, PLANTS, case_of, judge, paths

# Every command meets links to files and to directories, pipes and directories; the first numbers of each command.
SAMPLE = [command * len(paths()) + offset for command in range(len(COMMANDS)) for offset in (5, 16)]
AS_ROOT = [
    437,  # a repair, of a log that is a link to a directory
    483,  # a repair, of a temporary file that is a link to a directory
]


def test_every_path_meets_every_command() -> None:
    met = {(case.path, case.command) for case in map(case_of, range(len(paths()) * len(COMMANDS)))}
    assert met == {(path, command) for path in paths() for command in COMMANDS}
    assert {case_of(number).plant for number in range(200)} == set(PLANTS)


@pytest.mark.parametrize("number", SAMPLE, ids=lambda number: str(case_of(number)))
def test_what_lies_outside_stays_and_nothing_waits(number: int) -> None:
    judge(number)


@pytest.mark.skipif(not IS_ROOT, reason="needs root: another user owns the log directory and plants links in it")
@pytest.mark.parametrize("number", AS_ROOT, ids=lambda number: str(case_of(number)))
def test_what_root_does_stays_inside(number: int) -> None:
    judge(number)
