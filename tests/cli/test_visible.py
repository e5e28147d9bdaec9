"""Nothing that a person reads moves the cursor, hides or reorders text: names and records come from anybody."""

import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.terminal import in_terminal
from tidelog.cli.main import cli
from tidelog.log import LogConfig, UnifiedLog
from tidelog.records import NewRecord
from tidelog.records.record import Header
from tidelog.visible import visible, visible_exactly

# What the terminal obeys, or does not show. Written anew, not taken from the code under test.
RAW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0001\U000e0020-\U000e007f\ud800-\udfff]"
)
NASTY = (
    "\x1b[2J",
    "\x07",
    "\x9b31m",
    "\u202e",
    "\u2066",
    "\u200b",
    "\ufeff",
    "\x7f",
    "\x85",
    "\U000e0041",
    "\r",
    "\u2028",
)


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words), prog_name="tidelog")


@given(st.text())
def test_a_text_for_eyes_is_one_line_without_anything_that_hides(text: str) -> None:
    for shown in (visible(text), visible_exactly(text)):
        assert RAW.search(shown) is None
        assert "\n" not in shown
        assert "\t" not in shown


@given(st.text(), st.text())
def test_two_texts_look_alike_only_if_they_are(one: str, other: str) -> None:
    assert (visible_exactly(one) == visible_exactly(other)) == (one == other)


def test_letters_of_all_scripts_and_their_marks_stay() -> None:
    for text in ("grüße", "漢字かな", "नमस्ते", "שלום", "e\u0301", "\u00a0", "🌊"):
        assert visible(text) == text


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root whose path, topics, other files, keys, values and headers are nasty, and of which one log is damaged."""
    place = tmp_path_factory.mktemp("visible") / f"logs{''.join(NASTY[:8])}"
    rng = random.Random(7)
    for number, topic in enumerate(("plain", f"a{NASTY[0]}b", f"x{NASTY[3]}{NASTY[5]}y", "broken")):
        with UnifiedLog.open(place / f"made-{number}", LogConfig(segment_bytes=2_000)) as log:
            for _ in range(8):
                nasty = "".join(rng.choices(NASTY, k=4))
                header = Header(f"h{nasty}", nasty.encode())
                log.append(
                    [
                        NewRecord(
                            f"k{nasty}".encode(), f"v{nasty}\xe9".encode() + b"\xff\x9b", 1_700_000_000_000, [header]
                        )
                    ]
                )
        os.rename(place / f"made-{number}", place / f"{topic}-{number}")  # by hand: nobody else gives such names
    for name in (f"odd{NASTY[0]}", f"odd{NASTY[3]}.log", b"no-utf8-\xff"):
        path = os.path.join(os.fsencode(place), os.fsencode(name))
        Path(os.fsdecode(path)).write_bytes(b"x")
    (place / "plain-0" / f"{NASTY[3]}.txt").write_bytes(b"x")
    log_file = next((place / "broken-3").glob("*.log"))
    data = bytearray(log_file.read_bytes())
    data[100] ^= 1
    log_file.write_bytes(data)
    return place


COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "ls": lambda root: ["ls", root],
    "ls -l": lambda root: ["ls", "-l", root],
    "ls of a topic that is not there": lambda root: ["ls", root, "--topic", f"t{NASTY[0]}"],
    "ls of nothing": lambda root: ["ls", f"{root}/nothing{NASTY[0]}"],
    "cat": lambda root: ["cat", root, "--topic", "plain"],
    "cat with headers": lambda root: ["cat", root, "--topic", "plain", "--headers", "--limit", "5"],
    "cat of columns": lambda root: ["cat", root, "--topic", f"a{NASTY[0]}b", "--skip-corrupt", "--headers"],
    "cat of damage": lambda root: ["cat", root, "--topic", "broken"],
    "cat of a key": lambda root: ["cat", root, "--topic", "plain", "--key", f"k{NASTY[1]}"],
    "cat to a file": lambda root: ["cat", root, "--topic", "plain", "--out", f"{root}/no/such{NASTY[0]}"],
    "explain": lambda root: ["explain", root, "--topic", f"a{NASTY[0]}b", "--partition", "1", "--offset", "3"],
    "explain of nothing": lambda root: ["explain", root, "--topic", f"{NASTY[4]}", "--offset", "3"],
    "fsck": lambda root: ["fsck", root],
    "fsck --deep": lambda root: ["fsck", root, "--deep"],
    "fsck --repair --dry-run": lambda root: ["fsck", root, "--repair", "--dry-run"],
    "fsck of nothing": lambda root: ["fsck", f"{root}/nothing{NASTY[0]}"],
    "reindex --dry-run": lambda root: ["reindex", root, "--dry-run"],
    "diff": lambda root: ["diff", root, root],
    "diff --fingerprint": lambda root: ["diff", root, "--fingerprint", "--topic", "plain"],
    "diff of two": lambda root: ["diff", f"{root}/plain-0", f"{root}/broken-3"],
    "compact --dry-run": lambda root: ["compact", root, "--topic", f"a{NASTY[0]}b", "--dry-run"],
    "compact of nothing": lambda root: ["compact", root, "--topic", f"{NASTY[0]}{NASTY[3]}"],
    "export": lambda root: ["export", root, "--topic", f"{NASTY[0]}", "--to", "x.csv"],
    "export to nowhere": lambda root: ["export", root, "--topic", "plain", "--to", f"{root}/no{NASTY[3]}/x.csv"],
    "load": lambda root: ["load", f"x{NASTY[0]}.csv", "--to", root, "--topic", "t"],
    "an option": lambda root: ["ls", f"--wrong{NASTY[0]}", root],
    "a value of an option": lambda root: ["cat", root, "--topic", "plain", "--from", f"x{NASTY[3]}"],
    "a command": lambda root: [f"l{NASTY[0]}s"],
    "an error with its traceback": lambda root: ["--traceback", "ls", f"{root}/nothing{NASTY[0]}"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_prints_what_a_terminal_would_obey(name: str, root: Path) -> None:
    result = run(*COMMANDS[name](str(root)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    shown = result.stdout + result.stderr
    assert shown
    found = RAW.search(shown)
    assert found is None, shown[max(found.start() - 60, 0) : found.end() + 20].encode("unicode_escape")
    if not name.startswith("cat"):
        assert "\t" not in shown


def test_the_report_of_a_profile_hides_nothing() -> None:
    from tidelog.spark.jobs.words import escape, key_text

    for nasty in NASTY:
        assert RAW.search(escape(f"<{nasty}>")) is None
        assert RAW.search(key_text(nasty.encode())) is None


def test_machine_formats_hold_the_characters_themselves(root: Path) -> None:
    result = run("cat", str(root), "--topic", "plain", "-o", "jsonl", "--limit", "1")
    assert json.loads(result.stdout)["topic"] == "plain"
    result = run("ls", str(root), "--json")
    topics = [json.loads(line)["topic"] for line in result.stdout.splitlines()]
    assert f"x{NASTY[3]}{NASTY[5]}y" in topics


def test_only_one_module_prints() -> None:
    """Others would forget to escape."""
    import tidelog.cli

    raw = {
        "output.py",
        "main.py",
        "completion.py",
        "spark.py",
        "compaction_run.py",
    }  # a script, a path, what is made by output
    folder = Path(tidelog.cli.__file__).parent
    wrong = [
        path.name
        for path in folder.rglob("*.py")
        if path.name not in raw and re.search(r"click\.s?echo\((?!\))|(?<![\w.])print\(", path.read_text())
    ]
    assert [name for name in wrong if name != "doctor.py"] == []  # which prints within another interpreter


def test_dump_log_escapes_in_a_terminal_and_prints_every_byte_into_a_pipe(root: Path) -> None:
    log = str(next((root / "plain-0").glob("*.log")))
    words = ["dump-log", "--print-data-log", "--files", log]
    assert RAW.search(run(*words).stdout) is not None
    shown = in_terminal(*words)
    assert shown.code == 0
    assert "\\x1b[2J" in shown.text
    assert RAW.search(shown.text) is None


@pytest.mark.parametrize("limit", ["1000", "100000"])
@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_machine_formats_are_escaped_in_a_terminal_alone(root: Path, form: str, limit: str) -> None:
    """Few rows are written one by one, many as columns."""
    words = ["cat", str(root), "--topic", "plain", "-o", form, "--limit", limit]
    words += ["--salvage"] if limit == "100000" else []
    piped = run(*words).stdout
    shown = in_terminal(*words)
    assert (shown.code, RAW.search(shown.text)) == (0, None)
    assert RAW.search(piped) is not None
    if form == "jsonl":
        assert [json.loads(line) for line in shown.text.splitlines()] == list(map(json.loads, piped[:-1].split("\n")))
    else:
        assert "\\x1b[2J" in shown.text


def test_json_for_programs_is_escaped_in_a_terminal(root: Path) -> None:
    shown = in_terminal("ls", str(root), "--json")
    assert (shown.code, RAW.search(shown.text)) == (0, None)
    assert f"x{NASTY[3]}{NASTY[5]}y" in [json.loads(line)["topic"] for line in shown.text.splitlines()]


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_binary_forms_are_not_for_a_terminal(root: Path, form: str) -> None:
    shown = in_terminal("cat", str(root), "--topic", "plain", "-o", form)
    assert shown.code == 2
    assert f"{form} is not for a terminal: redirect standard output, or name a file with --out" in shown.text
