"""The ends that are nobody's fault: a reader that leaves, and Ctrl-C, wherever it meets a command."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.log import LogConfig, UnifiedLog
from tidelog.records import NewRecord

DEADLINE_S = 60


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records enough to fill a pipe many times."""
    place = tmp_path_factory.mktemp("streams")
    for number in range(40):
        with UnifiedLog.open(place / f"orders-{number}", LogConfig()) as log:
            log.append([NewRecord(b"key", b"value" * 40, 1_700_000_000_000)] * 200)
    return place


def ended_after_one_line(words: list[str], *, unbuffered: bool = False) -> tuple[int, str]:
    """The exit code and what is said on standard error, when the reader leaves after the first byte."""
    environment = {**os.environ, **({"PYTHONUNBUFFERED": "1"} if unbuffered else {})}
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    assert process.stderr is not None
    os.read(process.stdout.fileno(), 1)
    process.stdout.close()
    said = process.stderr.read().decode()
    process.stderr.close()
    return process.wait(DEADLINE_S), said


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize(
    "words",
    [
        ["cat", "--topic", "orders"],
        ["cat", "--topic", "orders", "-o", "jsonl"],
        ["cat", "--topic", "orders", "-o", "arrow"],
        ["dump-log", "--print-data-log"],
        ["ls", "-l"],
        ["ls", "-l", "--json"],
        ["fsck", "--json"],
        ["diff", "--fingerprint"],
    ],
)
def test_a_reader_that_leaves_is_no_error(words: list[str], root: Path, unbuffered: bool) -> None:
    assert ended_after_one_line([words[0], str(root), *words[1:]], unbuffered=unbuffered) == (0, "")


def test_a_reader_that_leaves_before_the_last_line_is_none_either(tmp_path: Path) -> None:
    """The answer is in a buffer when the reader has gone: Python would write it when it ends."""
    code = "import sys; sys.stdin.read(1); sys.argv = ['tidelog', '--version']; from tidelog.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    _, said = process.communicate(b"x", DEADLINE_S)
    assert (process.returncode, said) == (0, b"")


def test_another_pipe_that_breaks_is_an_error(tmp_path: Path) -> None:
    code = (
        "import click, sys; from tidelog.cli.main import cli, main\n"
        "@click.command('fail')\n"
        "def fail(): raise BrokenPipeError(32, 'Broken pipe', '/dev/elsewhere')\n"
        "cli.add_command(fail); sys.argv = ['tidelog', 'fail']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "tidelog: /dev/elsewhere: Broken pipe\n")


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------


def interrupted(code: str, *, ready: str = "ready") -> tuple[int, str, float]:
    """Exit code, standard error, and the time it took, of a program that gets SIGINT when it says that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == ready
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=DEADLINE_S)
    return process.returncode, said, time.monotonic() - began


_COMMAND = """
import click, sys, time
from tidelog.cli.main import cli, main
@click.command("{name}")
def command():
    {body}
cli.add_command(command)
sys.argv = ["tidelog", "{name}"]
main()
"""


def test_an_interrupt_in_python_ends_at_once_and_quietly() -> None:
    code = _COMMAND.format(name="wait", body='print("ready"); time.sleep(60)')
    ended, said, took = interrupted(code)
    assert (ended, said) == (130, "")
    assert took < 2


def test_an_interrupt_in_a_call_that_does_not_come_back_ends_after_a_grace_period() -> None:
    """A lock that is taken twice, which no signal ends: as in a library that waits for a network."""
    body = "import ctypes; lock = ctypes.create_string_buffer(64); take = ctypes.CDLL(None).pthread_mutex_lock\n"
    body += '    print("ready"); take(lock); take(lock)'
    ended, said, took = interrupted(_COMMAND.format(name="wait", body=body))
    assert (ended, said) == (130, "")
    assert took < 10


@pytest.fixture
def silent_store() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_an_interrupt_ends_a_command_that_waits_for_a_store(silent_store: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog", "ls", "s3://bucket/logs"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={
            **os.environ, "AWS_ENDPOINT_URL": f"http://{silent_store}", "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1",
        },
    )  # fmt: skip
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2.5)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, said) == (130, "")
    assert time.monotonic() - began < 8


# -- encodings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_locale_without_the_characters_shows_them_escaped(encoding: str, tmp_path: Path) -> None:
    place = tmp_path / "b\u00fccher-\u6f22"
    with UnifiedLog.open(place / "orders-0", LogConfig()) as log:
        log.append([NewRecord("schl\u00fcssel".encode(), "\u6f22\U0001f30a".encode(), 1_700_000_000_000)])
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for words in (["ls", str(place)], ["ls", f"{place}\u6f22"], ["cat", str(place), "--topic", "orders"]):
        done = subprocess.run(
            [sys.executable, "-m", "tidelog", *words], capture_output=True, env=environment, check=False
        )
        assert done.returncode in (0, 2)
        assert b"Traceback" not in done.stderr
        assert done.stdout + done.stderr
