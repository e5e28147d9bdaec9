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


@pytest.mark.parametrize(
    ("words", "how"),
    [("ls {root}", ">&-"), ("--help", "1</dev/null"), ("load {input} --to {new} --topic t", ">&-")],
)
def test_a_closed_standard_output_is_one_line_before_anything_is_done(
    words: str, how: str, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text("value\nx\n")
    command = words.format(root=root, input=tmp_path / "in.csv", new=tmp_path / "new")
    done = in_shell(f"{sys.executable} -m tidelog {command} {how}")
    assert (done.returncode, done.stdout) == (2, b"")
    said = b"tidelog: standard output is closed, so nothing was done: send it to a file or to /dev/null\n"
    assert done.stderr == said
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("words", "code"), [("ls {root}", 0), ("fsck {root}", 0), ("ls {root}/none", 2)])
def test_a_closed_standard_error_changes_neither_the_answer_nor_the_exit_code(
    words: str, code: int, root: Path
) -> None:
    command = f"{sys.executable} -m tidelog {words.format(root=root)}"
    open_, closed = in_shell(command), in_shell(f"{command} 2>&-")
    assert (closed.returncode, closed.stdout, closed.stderr) == (code, open_.stdout, b"")
    assert in_shell(f"{command} >&- 2>&- <&-").returncode == 2


def test_no_file_gets_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    """Whatever a library prints to descriptor 2 would go into the first file that is opened."""
    code = (
        "import os; from tidelog.cli.streams import are_streams_open; are_streams_open()\n"
        f"number = os.open({str(tmp_path / 'segment')!r}, os.O_RDWR | os.O_CREAT); os.write(2, b'lost'); print(number)"
    )
    done = in_shell(f'{sys.executable} -c "$CODE" 2>&- <&-', CODE=code)
    assert int(done.stdout) > 2
    assert (tmp_path / "segment").read_bytes() == b""


@pytest.mark.parametrize("words", ["--help", "ls {root}"])
def test_a_full_disk_below_standard_output_is_one_line(words: str, root: Path) -> None:
    done = in_shell(f"{sys.executable} -m tidelog {words.format(root=root)} >/dev/full")
    assert (done.returncode, done.stderr) == (3, b"tidelog: standard output: the disk is full\n")
    assert "3 something could not be read or written (a full disk, too)" in " ".join(cli_help().split())


def cli_help() -> str:
    return subprocess.run([sys.executable, "-m", "tidelog", "--help"], capture_output=True, text=True).stdout


def in_shell(command: str, **environment: str) -> "subprocess.CompletedProcess[bytes]":
    """A command whose streams a shell closes."""
    return subprocess.run(
        ["sh", "-c", command], capture_output=True, env={**os.environ, **environment}, timeout=DEADLINE_S
    )


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


@pytest.fixture(autouse=True)
def _obey_interrupts() -> Iterator[None]:
    """A shell that runs tests in the background has SIGINT ignored, and so would every process that they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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


@pytest.mark.parametrize("module", ["click", "tidelog.errors", "tidelog.cli.streams", "tidelog.cli.ls"])
def test_ctrl_c_while_the_command_is_loaded_is_no_traceback(module: str) -> None:
    """The signal comes at the import of a module: each stands for a moment of the first tenth of a second."""
    code = (
        "import signal, sys\n"
        "class Pressed:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Pressed()); sys.argv = ['tidelog', 'ls', '.']\n"
        "from tidelog.cli import main\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr) == (130, b"")


def test_importing_the_package_imports_nothing_that_ctrl_c_could_interrupt() -> None:
    """Its own file is all that is loaded before `tidelog.cli`, which handles Ctrl-C from its first line on."""
    code = (
        "import sys\n"
        "class Asked:\n"
        "    def find_spec(self, name, path=None, target=None): print(name)\n"
        "sys.meta_path.insert(0, Asked())\n"
        "import tidelog"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, timeout=DEADLINE_S)
    assert done.stdout.decode().split() == ["tidelog"]


def test_ctrl_c_before_the_words_of_a_command_are_read_is_no_traceback() -> None:
    code = (
        "import signal, sys, tidelog.cli\n"
        "module = sys.modules['tidelog.cli.main']\n"
        "module.are_streams_open = lambda: signal.raise_signal(signal.SIGINT)\n"
        "sys.argv = ['tidelog', 'ls', '.']\n"
        "module.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr) == (130, b"")
