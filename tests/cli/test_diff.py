"""`tidelog diff`: what people and programs are told, and how it ends."""

import json
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.terminal import in_terminal
from tests.fsck.roots import a_root
from tests.log.segments_language import batch
from tidelog.cli.main import cli

TEN = [batch(offset, b"value", epoch=offset // 4) for offset in range(10)]
PAGE = Path(__file__).parents[2] / "docs" / "diff.md"
OTHER = [*TEN[:6], batch(6, b"other", epoch=3)]


def diff(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["diff", *map(str, arguments)])


@pytest.fixture
def roots(tmp_path: Path) -> dict[str, Path]:
    logs = {"whole": TEN, "same": TEN, "short": TEN[:7], "other": OTHER}
    return {name: a_root(tmp_path / name, {"orders-0": log}) for name, log in logs.items()}


def test_equal_sides_end_with_0(roots: dict[str, Path]) -> None:
    done = diff(roots["whole"], roots["same"], "--strict", "--verify")
    assert done.exit_code == 0, done.output
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["partition", "A", "B", "equal", "batches", "result"],
        ["orders-0", "0..10", "0..10", "10", "equal"],
    ]


def test_being_behind_is_told_and_is_a_difference_only_strictly(roots: dict[str, Path]) -> None:
    done = diff(roots["whole"], roots["short"])
    assert done.exit_code == 0
    assert "B is behind by 3, equal up to there" in done.stdout
    assert diff(roots["whole"], roots["short"], "--strict").exit_code == 1


def test_a_difference_ends_with_1_and_is_shown_with_both_headers(roots: dict[str, Path]) -> None:
    done = diff(roots["whole"], roots["other"])
    assert done.exit_code == 1
    position = sum(map(len, TEN[:6]))
    assert "orders-0: first difference at offset 6 (records)" in done.stdout
    for side in ("whole", "other"):
        assert f"{roots[side]}/orders-0/00000000000000000000.log at {position}: offsets 6 to 6" in done.stdout
    (epochs,) = [line.split() for line in done.stdout.splitlines() if "partition_leader_epoch" in line]
    assert epochs == ["partition_leader_epoch", "1", "3"]
    assert "  batches: 1 different\n" in done.stdout
    assert "a replica with A's log cuts it there" in done.stdout


def test_the_page_about_it_shows_what_is_printed(tmp_path: Path) -> None:
    a, b = a_root(tmp_path / "a", {"orders-0": TEN}), a_root(tmp_path / "b", {"orders-0": OTHER})
    page = PAGE.read_text(encoding="utf-8")
    for done in (diff(a, b), diff("--fingerprint", a, "--to-offset", 7)):
        shown = done.stdout.replace(str(tmp_path), "/data")
        assert textwrap.indent(shown, "    ") in page


def test_programs_get_an_object_per_partition(roots: dict[str, Path]) -> None:
    done = diff(roots["whole"], roots["other"], "--json")
    (told,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (told["partition"], told["outcome"], told["leader_epochs"]["truncated"]) == ("orders-0", "different", "A")
    assert told["first_difference"]["b"]["header"]["partition_leader_epoch"] == 3


def test_commas_join_the_directories_of_a_side(roots: dict[str, Path], tmp_path: Path) -> None:
    done = diff(roots["whole"], f"{roots['short']},{roots['same']}", "--strict")
    assert done.exit_code == 0, done.output
    with_comma = a_root(tmp_path / "one,two", {"orders-0": TEN})
    assert diff(roots["whole"], with_comma, "--strict").exit_code == 0


def flip_a_bit(root: Path) -> Path:
    """Flip a bit in the second batch of orders-0; its log."""
    log = root / "orders-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[len(TEN[0]) + 65] ^= 1
    log.write_bytes(data)
    return log


def test_a_log_that_cannot_be_read_ends_with_3(roots: dict[str, Path]) -> None:
    log = flip_a_bit(roots["same"])
    assert diff(roots["whole"], roots["same"], "--no-verify").exit_code == 0
    done = diff(roots["whole"], roots["same"])
    assert done.exit_code == 3
    assert f"{log}, position {len(TEN[0])}" in done.stdout


def test_a_narrow_terminal_shows_partition_file_and_position_of_an_error(roots: dict[str, Path]) -> None:
    log = flip_a_bit(roots["same"])
    shown = in_terminal("diff", str(roots["whole"]), str(roots["same"]))
    assert shown.code == 3
    assert f"\norders-0: {log}, position {len(TEN[0])}" in shown.text
    [row] = [line for line in shown.text.splitlines() if line.startswith("orders-0 ")]
    assert "unreadable, see below" in row


def test_fingerprints_of_two_sides_are_compared_by_eye(roots: dict[str, Path]) -> None:
    one, other = (diff("--fingerprint", roots[name], "--to-offset", 7) for name in ("whole", "short"))
    assert one.exit_code == 0, one.output
    assert one.stdout == other.stdout
    assert one.stdout.splitlines()[1].split()[:4] == ["orders-0", "0", "7", "7"]
    told = json.loads(diff("--fingerprint", roots["whole"], "--json").stdout)
    assert (told["partition"], told["start_offset"], told["end_offset"], told["batches"]) == ("orders-0", 0, 10, 10)
    assert told["text"].startswith("tide1:")
    assert "tide1n:" in diff("--fingerprint", "--ignore-epochs", roots["whole"]).stdout


def test_wrong_words_end_with_2_and_a_place_that_is_not_there_in_one_line(roots: dict[str, Path]) -> None:
    assert diff(roots["whole"]).exit_code == 2
    assert diff(roots["whole"], roots["same"], roots["short"]).exit_code == 2
    assert diff(roots["whole"], roots["same"], "--from-offset", 1).exit_code == 2
    assert diff("--fingerprint", roots["whole"], "--to-offset", 11).exit_code == 2
    assert "the nearest is orders" in diff(roots["whole"], roots["same"], "--topic", "order").stderr
    gone = diff(roots["whole"], roots["whole"] / "nowhere")
    assert gone.exit_code in (2, 3)
    assert gone.stderr.count("\n") == 1


def test_people_are_told_that_checksums_were_believed_and_programs_are_not(roots: dict[str, Path]) -> None:
    for arguments in ((roots["whole"], roots["same"]), ("--fingerprint", roots["whole"])):
        assert "--no-verify" in diff(*arguments, "--no-verify").stdout.splitlines()[-1]
        assert "believed" not in diff(*arguments).output
        assert "believed" not in diff(*arguments, "--no-verify", "--json").output
