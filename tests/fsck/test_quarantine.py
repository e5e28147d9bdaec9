"""The quarantine: no place of logs for anybody, and no more readable than what it holds."""

import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

from tests.fsck.roots_on_disk import a_root, contents, flip, segment
from tests.fsck.test_repair import repaired
from tidelog.errors import InvalidRequestError
from tidelog.fsck import check, repair
from tidelog.fsck.quarantine import MANIFEST

KAFKA = 4321  # some user and group that is not ours


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return a_root(tmp_path)


def damage(root: Path) -> None:
    flip(segment(root, 1), 70)
    (root / "orders-1" / "notes.txt").write_text("mine")
    (root / "recovery-point-offset-checkpoint").write_text("nonsense")


def ensure_sums_are_true(quarantine: Path) -> int:
    """Compare every piece with its line; how many there are."""
    pieces = 0
    for manifest in quarantine.rglob(MANIFEST):
        for line in manifest.read_text().splitlines():
            entry = json.loads(line)
            if entry["piece"] is not None:
                assert hashlib.sha256((manifest.parent / entry["piece"]).read_bytes()).hexdigest() == entry["sha256"]
                pieces += 1
    return pieces


@pytest.mark.parametrize("name", [None, "kept"])
def test_a_repair_of_a_tree_does_not_take_its_own_quarantine_for_a_root(
    root: Path, tmp_path: Path, name: str | None
) -> None:
    damage(root)
    elsewhere = None if name is None else str(tmp_path / name)
    result = repair(str(tmp_path), quarantine=elsewhere)
    assert not [line for line in result.done if not line.startswith((f"{root}/", "orders-", "keys-", "old-"))]
    kept = tmp_path / (name or f"{root.name}.tidelog")
    before = contents(kept)
    assert ensure_sums_are_true(kept) > 3
    report = check(str(tmp_path), deep=True, quarantine=elsewhere)
    assert (report.counts["roots"], report.codes()) == (1, set())
    again = repair(str(tmp_path), quarantine=elsewhere)
    assert (again.done, again.left) == ([], [])
    assert contents(kept) == before


def test_what_lies_in_a_quarantine_is_rejected_where_it_is_named(root: Path) -> None:
    damage(root)
    (place,) = repaired(root).quarantine
    for path in (place, f"{place}/orders-0"):
        with pytest.raises(InvalidRequestError, match=r"quarantine|holds no log directory"):
            repair(path)


def test_a_quarantine_can_be_read_by_nobody_who_could_not_read_what_is_in_it(root: Path, tmp_path: Path) -> None:
    for path in [root, *root.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
    damage(root)
    (root / "orders-1" / "notes.txt").chmod(0o600)
    segment(root, 1).chmod(0o640)
    before = os.umask(0o000)
    try:
        (place,) = repaired(root).quarantine
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [Path(place).parent, *Path(place).parent.rglob("*")]}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file() and ".log@" not in path.name} == {0o600}
    assert [mode for path, mode in modes.items() if ".log@" in path.name] == [0o640]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_what_root_puts_into_a_quarantine_belongs_to_the_owner_of_the_files(root: Path) -> None:
    damage(root)
    for path in [root, *root.rglob("*")]:
        os.chown(path, KAFKA, KAFKA)
    (place,) = repaired(root).quarantine
    kept = [Path(place).parent, *Path(place).parent.rglob("*")]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in kept} == {(KAFKA, KAFKA)}


def test_a_quarantine_that_is_there_keeps_its_mode(root: Path) -> None:
    kept = root.with_name(f"{root.name}.tidelog")
    kept.mkdir(mode=0o750)
    kept.chmod(0o750)
    damage(root)
    repaired(root)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o750


def test_a_manifest_names_nothing_to_people_who_could_not_see_it(root: Path) -> None:
    """It holds names, sizes and digests."""
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    (root / "orders-1" / "private").mkdir(mode=0o700)
    (root / "orders-1" / "private" / "notes.txt").write_text("mine")
    damage(root)
    (place,) = repaired(root).quarantine
    assert "private/notes.txt" in (Path(place) / MANIFEST).read_text()
    assert stat.S_IMODE((Path(place) / MANIFEST).stat().st_mode) == 0o600


def test_a_manifest_that_somebody_else_has_written_ends_no_check(root: Path) -> None:
    kept = root.with_name(f"{root.name}.tidelog") / "20260101T000000Z"
    kept.mkdir(parents=True)
    (kept / MANIFEST).write_text("[" * 200_000)
    assert check(str(root)).is_clean
