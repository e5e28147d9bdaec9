"""Repairs that are interrupted at every call; `make campaign` does the same to all of them."""

import pytest

from tests.fsck.damages import tree
from tests.fsck.interrupted import (
    HARMS,
    Harm,
    corrupt_batch,
    cut_power,
    fill_disk,
    harmed,
    leave_swap,
    mend,
    rename_segment,
    shift_offset,
    spoil_checkpoints,
    whole,
)
from tests.fsck.world import ROOT, small_world
from tidelog.errors import StorageError
from tidelog.fsck import check
from tidelog.log.files import join

EVERY_CALL = (corrupt_batch, rename_segment, shift_offset)
STEP = 17  # of the others the suite tries some calls, and each kind of interruption at others


def calls_of(harm: Harm, first: int) -> range:
    return range(1 if harm in EVERY_CALL else first, whole(harm).calls + 1, 1 if harm in EVERY_CALL else STEP)


every_harm = pytest.mark.parametrize("harm", HARMS, ids=[harm.__name__ for harm in HARMS])


def test_the_small_world_is_clean_and_each_harm_is_found() -> None:
    assert check(ROOT, deep=True, fs=small_world(), jobs=1).codes() == set()
    for harm in HARMS:
        assert not check(ROOT, deep=True, fs=harmed(harm), jobs=1).is_clean, harm


@every_harm
def test_a_power_cut_at_any_call_loses_nothing_and_the_next_repair_completes_it(harm: Harm) -> None:
    for call in calls_of(harm, 3):
        cut_power(harm, call)


@every_harm
def test_a_disk_that_is_full_at_any_call_loses_nothing_and_the_next_repair_completes_it(harm: Harm) -> None:
    for call in range(5, whole(harm).calls + 1, STEP):
        fill_disk(harm, call, partly=call % 2 == 0)


@every_harm
def test_a_disk_that_refuses_everything_from_some_call_on_loses_nothing(harm: Harm) -> None:
    for call in range(8, whole(harm).calls + 1, 2 * STEP):
        fill_disk(harm, call, for_good=True)


@pytest.mark.parametrize("harm", [corrupt_batch, leave_swap, spoil_checkpoints])
def test_a_quarantine_that_cannot_be_written_leaves_the_root_as_it_was(harm: Harm) -> None:
    disk = harmed(harm)
    before = tree(disk, ROOT)
    disk.fail(operation="make_directory", path=f"{ROOT}.tidelog*", error="Permission denied")
    result = mend(disk)
    assert result.failures
    assert not result.is_clean
    assert tree(disk, ROOT) == before  # the mark of the clean stop too
    disk.heal()
    assert mend(disk).is_clean


def test_a_quarantine_that_cannot_be_read_is_told_and_the_root_is_checked_all_the_same() -> None:
    disk = harmed(corrupt_batch)
    mend(disk)
    disk.fail(operation="list", path=f"{ROOT}.tidelog*", error="Permission denied")
    assert check(ROOT, deep=True, fs=disk, jobs=1).codes() == {"FILE-READ", "LOG-GAP"}


def test_a_root_that_cannot_be_written_is_refused_before_anything_is_done() -> None:
    disk = harmed(corrupt_batch)
    before = tree(disk, ROOT)
    disk.fail(operation="create", path=join(ROOT, ".lock"), error="Read-only file system")
    with pytest.raises(StorageError, match="Read-only file system"):
        mend(disk)
    assert tree(disk, ROOT) == before
