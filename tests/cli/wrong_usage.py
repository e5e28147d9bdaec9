"""Commands typed at random: verbs, options and paths that fit, nearly fit, or are not there at all.

Whatever is typed, a command ends with an exit code it has documented, without a traceback. Wrong usage (2) and input
that cannot be read (3) are told in one line, and wrong usage prints nothing else. What is printed for people holds no
character that a terminal would obey. A directory is changed by nobody here: commands that write are given what they
must reject, or a dry run.

`run(seed, cases)` is one block of a campaign; `command_of(seed, number, world)` is one command of it.
"""

import os
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from click.testing import CliRunner

from tests.spark.logs import record, write
from tidelog.cli.main import cli

RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
NASTY = "\x1b[2J\u202e"
SOUND = ("good", "good/orders-0", "live")  # what can be read; the rest is rejected, or is empty
REJECTED = (
    "nothing", "empty", "hidden", "file", "rows.csv", "dangling", "a-file-as-partition", "loop", f"odd{NASTY}",
    "good/orders-0/00000000000000000000.log", "good/none-*", "",
)  # fmt: skip
ELSEWHERE = ("ftp://host/x", "file:///nowhere", "file://host/x", "/dev/null", "/proc/self/mem", "x" * 300, "~nobody/x")
VALUES = (
    "", "-1", "0", "3", "x", "9" * 25, "a=b", "=", "2026-01-01", "2026-13-01", "-1h", "now", "base64:%", NASTY, "é",
    "orders", "segment.bytes=1", "cleanup.policy=compact", "csv", "key", "1.5", "--", "0x10", "\u0661",
)  # fmt: skip
TOPICS = ("orders", "orders", "other", "", NASTY, "a,b", "x" * 300)
NEVER = {"--master", "--help", "-h", "--traceback"}  # would start Spark, or print a page
WRITES = {"compact": ["--dry-run"], "reindex": ["--dry-run"], "fsck": []}
READS = ("ls", "cat", "explain", "fsck", "diff", "export", "reindex", "compact", "dump-log")
REJECTING = ("load", "recover", "spark verify", "spark diff", "spark profile")  # given what they must reject only


@contextmanager
def world() -> Iterator[Path]:
    """Directories and files of every kind that a command may be pointed at."""
    place = Path(tempfile.mkdtemp(prefix="tidelog-usage-"))
    try:
        for name in ("good", "live"):
            write(place / name, "orders", 0, (record(number) for number in range(10)))
            (place / name / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 10\n")
        for name in ("empty", "hidden", "out", f"odd{NASTY}", "a-file-as-partition"):
            (place / name).mkdir()
        (place / "hidden" / ".x").write_text("x")
        (place / f"odd{NASTY}" / f"{NASTY}-0").write_text("x")
        (place / "a-file-as-partition" / "orders-0").write_text("x")
        (place / "file").write_text("hello")
        (place / "rows.csv").write_text("key,value\na,b\n")
        (place / "dangling").symlink_to(place / "nowhere")
        (place / "loop").symlink_to(place / "loop")
        yield place
    finally:
        shutil.rmtree(place)


def command_of(seed: int, number: int, place: Path) -> list[str]:
    """The words of one case."""
    rng = random.Random(f"usage {seed} {number}")
    verb = rng.choice(READS * 3 + REJECTING)
    names = REJECTED + ELSEWHERE if verb in REJECTING else REJECTED + ELSEWHERE + SOUND * 6
    paths = [_path(place, rng.choice(names)) for _ in range(rng.choice((1, 1, 1, 2, 0)))]
    words = [*verb.split(), *paths, *_wanted(verb, rng, place)]
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        words += _option(verb, rng, place)
    words += WRITES.get(verb, [])
    if "--repair" in words:
        words.append("--dry-run")
    return words


def _path(place: Path, name: str) -> str:
    return name if not name or name in ELSEWHERE else str(place / name)


def _wanted(verb: str, rng: random.Random, place: Path) -> list[str]:
    """What a command cannot do without; sometimes it has to."""
    if rng.random() < 0.05:
        return []
    words = {
        "cat": ["--topic", rng.choice(TOPICS)],
        "explain": ["--topic", rng.choice(TOPICS), "--offset", rng.choice(("3", "3", "99", "-1", "x"))],
        "export": ["--topic", rng.choice(TOPICS), "--to", str(place / "out" / f"{rng.random()}.csv")],
        "compact": ["--topic", rng.choice(TOPICS)],
        "load": ["--to", str(place / rng.choice(("file", "rows.csv", "nothing/x"))), "--topic", "new"],
    }
    return words.get(verb, [])


def _option(verb: str, rng: random.Random, place: Path) -> list[str]:
    """An option of the command, or of none, with a value that fits or does not."""
    if rng.random() < 0.1 or verb == "dump-log":
        return [
            rng.choice(("--no-such-option", f"--{NASTY}", "--print-data-log", "-Z", "--json=1", "--deep-iteration"))
        ]
    options = [
        option for option in _command(verb).params
        if isinstance(option, click.Option) and not NEVER & set(option.opts)
    ]  # fmt: skip
    option = rng.choice(options)
    name = rng.choice([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return [name]
    if name in ("--to", "--out", "--report", "--quarantine") and (name, verb) != ("--to", "cat"):  # which is a bound
        return [name, str(place / "out" / f"{rng.random()}.jsonl")]
    return [name, _path(place, rng.choice(REJECTED)) if rng.random() < 0.15 else rng.choice(VALUES)]


def _command(verb: str) -> click.Command:
    command: click.Command = cli
    for name in verb.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    return command


def run(seed: int, cases: int) -> Counter[str]:
    """Type commands at random; how often each exit code came out."""
    outcomes: Counter[str] = Counter()
    before = os.getcwd()
    with world() as place:
        sound = {name: _content(place / name) for name in ("good", "live")}
        os.chdir(place / "out")
        try:
            for number in range(cases):
                words = command_of(seed, number, place)
                outcomes[f"exit-{_judged(words, f'seed {seed}, case {number}: tidelog {words}')}"] += 1
        finally:
            os.chdir(before)
        assert {name: _content(place / name) for name in sound} == sound, f"seed {seed}: a directory was changed"
    return outcomes


def _judged(words: list[str], case: str) -> int:
    result = CliRunner().invoke(cli, words, prog_name="tidelog", input="")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError(f"{case}: {result.exception!r}") from result.exception
    assert result.exit_code in (0, 1, 2, 3), f"{case}: exit code {result.exit_code}"
    assert "Traceback" not in result.output, case
    if words[0] == "dump-log":  # its lines and codes are those of Kafka's tool
        return result.exit_code
    if result.exit_code == 2:
        assert result.stdout == "", f"{case}: {result.stdout}"
        assert re.fullmatch("tidelog: [^\n]+\n", result.stderr), f"{case}: {result.stderr}"
    if result.exit_code == 3:
        assert result.stderr or result.stdout, case
    is_for_programs = any(word in words for word in ("--json", "jsonl", "csv", "parquet", "arrow", "-o", "--output"))
    found = None if is_for_programs else RAW.search(result.output)
    assert found is None, f"{case}: prints {found}"
    assert RAW.search(result.stderr) is None, f"{case}: {result.stderr!a}"
    return result.exit_code


def _content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
