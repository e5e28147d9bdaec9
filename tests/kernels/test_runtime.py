"""Kernels are compiled once and kept where nobody else can write; without such a place they still work."""

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import crc32c as judge
import numpy as np
import pytest

import tidelog
from tidelog.kernels.buffers import address_of
from tidelog.kernels.cache import read_kept, write_kept
from tidelog.kernels.crc32c import crc32c, crc32c_portable
from tidelog.kernels.headers import Checksum, scan_headers
from tidelog.kernels.kept_code import KeptCode, pack, unpack
from tidelog.kernels.runtime import CACHE_VARIABLE
from tidelog.records import NewRecord, build_message_set

SOURCES = Path(tidelog.__file__).parents[1]
NOBODY = 65534

# Uses the cheapest kernel there is, and says whether numba had to compile it.
USE_A_KERNEL = """
def use_a_kernel():
    from numba.core import event
    compiled = []
    class Listener(event.Listener):
        def on_start(self, event): compiled.append(event)
        def on_end(self, event): pass
    event.register("numba:compile", Listener())
    from tidelog.kernels.buffers import address_of
    from tidelog.kernels.crc32c import crc32c, has_crc_instruction
    from tidelog.kernels.runtime import cache_directory
    assert crc32c(*address_of(b"123456789")) == 0xE3069283
    code = "instruction" if has_crc_instruction() else "tables"
    print("compiled" if compiled else "loaded", code, cache_directory(), flush=True)
"""

# Importing numba takes longer than all the rest: this does it once, then forks a process for every line it reads.
# A fork becomes another user only after the imports, since the interpreter may lie where that user cannot go.
SERVE = """
import importlib.resources, json, os, pwd, sys, traceback
import crc32c, numba, numpy
numba.njit("int64(int64)")(lambda number: number + 1)  # numba imports much of itself when it compiles
for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.chdir(order["folder"])
            os.environ.clear()
            os.environ.update(order["environment"])
            sys.path.insert(0, os.environ["PYTHONPATH"])
            if order["user"] is not None:
                os.setgroups([])
                os.setgid(order["user"])
                os.setuid(order["user"])
            use_a_kernel()
            status = 0
        except BaseException:
            print("failed", traceback.format_exc().replace(chr(10), " | "), flush=True)
        os._exit(status)
    os.waitpid(child, 0)
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


class Machine:
    """Processes with an environment of their own, each using one kernel."""

    def __init__(self, home: Path, server: "subprocess.Popen[str] | None" = None) -> None:
        self.home = home
        self.cache = home / "kernels"
        self._server = server

    def _environment(self, changes: dict[str, str | None]) -> dict[str, str]:
        merged = {
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPATH": str(SOURCES),
            "PYTHONDONTWRITEBYTECODE": "1",
            CACHE_VARIABLE: str(self.cache),
            **changes,
        }
        return {name: value for name, value in merged.items() if value is not None}

    def run(self, as_user: int | None = None, **environment: str | None) -> list[str]:
        """What a process says of itself: compiled or loaded, instruction or tables, the folder of the cache."""
        assert self._server is not None
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        order = {"folder": str(self.home), "environment": self._environment(environment), "user": as_user}
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()
        return self._server.stdout.readline().split()

    def run_afresh(self, **environment: str | None) -> list[str]:
        """The same, by a process that starts from nothing."""
        done = subprocess.run(
            [sys.executable, "-c", USE_A_KERNEL + "use_a_kernel()"],
            env=self._environment(environment),
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    def files(self) -> list[Path]:
        return sorted(self.cache.iterdir())


@pytest.fixture(scope="module")
def server() -> "Iterator[subprocess.Popen[str]]":
    with subprocess.Popen(
        [sys.executable, "-c", USE_A_KERNEL + SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def machine(server: "subprocess.Popen[str]") -> Iterator[Machine]:
    with tempfile.TemporaryDirectory() as home:  # other users must reach it; pytest's own folders are closed to them
        Path(home).chmod(0o755)
        yield Machine(Path(home), server)


@pytest.fixture(scope="module")
def compiled_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with one kernel in it, to be copied."""
    machine = Machine(tmp_path_factory.mktemp("compiled"))
    assert machine.run_afresh()[0] == "compiled"
    return machine.cache


@pytest.fixture
def warm(machine: Machine, compiled_cache: Path) -> Machine:
    """A machine on which the kernel was compiled before."""
    shutil.copytree(compiled_cache, machine.cache)
    return machine


# -- the cache ---------------------------------------------------------------------------------------------------------


def test_what_is_compiled_is_kept_for_its_owner_alone(compiled_cache: Path) -> None:
    assert compiled_cache.stat().st_mode & 0o777 == 0o700
    (file,) = compiled_cache.iterdir()
    assert file.name.startswith("crc32c.crc32c-")
    assert file.suffix == ".kernel"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_second_process_loads_what_the_first_compiled(warm: Machine) -> None:
    (before,) = warm.files()
    content = before.read_bytes()
    assert warm.run_afresh()[::2] == ["loaded", str(warm.cache)]
    assert [file.read_bytes() for file in warm.files()] == [content]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:31],
        lambda content: content[:-1],
        lambda content: content[:100] + bytes([content[100] ^ 1]) + content[101:],
        lambda content: bytes(len(content)),
    ],
    ids=["empty", "no digest", "cut off", "a flipped bit", "zeros"],
)
def test_a_damaged_file_is_compiled_again(warm: Machine, damage: Callable[[bytes], bytes]) -> None:
    (file,) = warm.files()
    content = file.read_bytes()
    file.write_bytes(damage(content))
    assert warm.run()[0] == "compiled"
    assert warm.files() == [file]
    assert len(file.read_bytes()) > 1000
    assert warm.run()[0] == "loaded"


def test_code_of_other_sources_is_not_found(warm: Machine) -> None:
    sources = warm.home / "src"
    shutil.copytree(SOURCES / "tidelog", sources / "tidelog", ignore=shutil.ignore_patterns("__pycache__"))
    assert warm.run(PYTHONPATH=str(sources))[0] == "loaded"  # the same sources elsewhere
    with (sources / "tidelog/kernels/memory.py").open("a") as source:
        source.write("\n# a change anywhere among the kernels is a change of all\n")
    assert warm.run(PYTHONPATH=str(sources))[0] == "compiled"
    assert len(warm.files()) == 2


def test_code_for_another_processor_is_not_found(warm: Machine) -> None:
    assert warm.run_afresh(NUMBA_CPU_NAME="generic")[:2] == ["compiled", "tables"]
    assert warm.run_afresh(NUMBA_CPU_NAME="generic")[:2] == ["loaded", "tables"]
    assert warm.run()[0] == "loaded"


def test_the_cache_lies_in_the_users_cache_folder(machine: Machine) -> None:
    words = machine.run(**{CACHE_VARIABLE: None, "HOME": str(machine.home)})
    assert words[::2] == ["compiled", str(machine.home / ".cache/tidelog/kernels")]
    words = machine.run(**{CACHE_VARIABLE: None, "XDG_CACHE_HOME": str(machine.home / ".cache")})
    assert words[::2] == ["loaded", str(machine.home / ".cache/tidelog/kernels")]


@needs_root
def test_every_user_keeps_their_own(machine: Machine, readable_sources: Path) -> None:
    machine.cache.mkdir(mode=0o700)
    os.chown(machine.cache, NOBODY, NOBODY)
    options: dict[str, Any] = {"PYTHONPATH": str(readable_sources), "as_user": NOBODY}
    assert machine.run(**options)[::2] == ["compiled", str(machine.cache)]
    assert machine.run(**options)[::2] == ["loaded", str(machine.cache)]
    assert [file.stat().st_uid for file in machine.files()] == [NOBODY]


# -- no trustworthy place ----------------------------------------------------------------------------------------------


def everything_below(path: Path) -> list[tuple[str, int]]:
    return sorted((str(entry), entry.lstat().st_mtime_ns) for entry in path.rglob("*"))


def _open_to_the_group(machine: Machine) -> dict[str, Any]:
    machine.cache.mkdir()
    machine.cache.chmod(0o750)
    return {}


def _open_to_all(machine: Machine) -> dict[str, Any]:
    machine.cache.mkdir()
    machine.cache.chmod(0o707)
    return {}


def _a_symlink(machine: Machine) -> dict[str, Any]:
    (machine.home / "elsewhere").mkdir(mode=0o700)
    machine.cache.symlink_to("elsewhere")
    return {}


def _a_symlink_to_nothing(machine: Machine) -> dict[str, Any]:
    machine.cache.symlink_to("nowhere")
    return {}


def _a_file(machine: Machine) -> dict[str, Any]:
    machine.cache.write_bytes(b"")
    return {}


def _below_a_file(machine: Machine) -> dict[str, Any]:
    (machine.home / "file").write_bytes(b"")
    return {CACHE_VARIABLE: str(machine.home / "file" / "kernels")}


def _a_relative_path(machine: Machine) -> dict[str, Any]:
    return {CACHE_VARIABLE: "kernels"}


def _a_relative_cache_home(machine: Machine) -> dict[str, Any]:
    return {CACHE_VARIABLE: None, "XDG_CACHE_HOME": "cache"}


def _in_a_folder_that_all_can_write_to(machine: Machine) -> dict[str, Any]:
    (machine.home / "shared").mkdir()
    (machine.home / "shared" / "kernels").mkdir(mode=0o700)
    (machine.home / "shared").chmod(0o777)
    return {CACHE_VARIABLE: str(machine.home / "shared" / "kernels")}


def _in_a_folder_that_the_group_can_write_to(machine: Machine) -> dict[str, Any]:
    (machine.home / "shared").mkdir()
    (machine.home / "shared" / "kernels").mkdir(mode=0o700)
    (machine.home / "shared").chmod(0o775)
    return {CACHE_VARIABLE: str(machine.home / "shared" / "kernels")}


def _of_another_user(machine: Machine) -> dict[str, Any]:
    machine.cache.mkdir(mode=0o700)
    os.chown(machine.cache, NOBODY, NOBODY)
    return {}


def _not_writable(machine: Machine) -> dict[str, Any]:
    machine.cache.mkdir(mode=0o500)
    os.chown(machine.cache, NOBODY, NOBODY)
    return {"as_user": NOBODY}


def _a_closed_parent(machine: Machine) -> dict[str, Any]:
    (machine.home / "closed").mkdir(mode=0o555)
    return {CACHE_VARIABLE: str(machine.home / "closed" / "kernels"), "as_user": NOBODY}


def _no_home(machine: Machine) -> dict[str, Any]:
    return {CACHE_VARIABLE: None, "HOME": None, "as_user": NOBODY}


def _an_unknown_user_without_home(machine: Machine) -> dict[str, Any]:
    return {CACHE_VARIABLE: None, "HOME": None, "as_user": 54_321}


OF_ANYONE = [
    _open_to_the_group,
    _open_to_all,
    _a_symlink,
    _a_symlink_to_nothing,
    _a_file,
    _below_a_file,
    _a_relative_path,
    _a_relative_cache_home,
    _in_a_folder_that_all_can_write_to,
    _in_a_folder_that_the_group_can_write_to,
]
OF_ROOT = [_of_another_user, _not_writable, _a_closed_parent, _no_home, _an_unknown_user_without_home]


@pytest.mark.parametrize(
    "place",
    [*OF_ANYONE, *(pytest.param(place, marks=needs_root) for place in OF_ROOT)],
    ids=lambda place: place.__name__.strip("_").replace("_", " "),
)
def test_without_a_place_of_ones_own_nothing_is_kept(
    machine: Machine, place: Callable[[Machine], dict[str, Any]], readable_sources: Path
) -> None:
    options = {"PYTHONPATH": str(readable_sources), **place(machine)}
    before = everything_below(machine.home)
    assert machine.run(**options)[::2] == ["compiled", "None"]
    assert everything_below(machine.home) == before


@pytest.fixture(scope="module")
def readable_sources() -> Iterator[Path]:
    """The package in a folder that anyone may read and nobody may write. (pytest keeps its own folders to itself.)"""
    root = Path(tempfile.mkdtemp())
    shutil.copytree(SOURCES / "tidelog", root / "tidelog", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (root, *(path for path in root.rglob("*") if path.is_dir())):
        folder.chmod(0o555)
    yield root
    for folder in (root, *(path for path in root.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    shutil.rmtree(root)


def test_a_folder_below_one_with_a_sticky_bit_is_ones_own(machine: Machine) -> None:
    (machine.home / "tmp").mkdir()
    (machine.home / "tmp").chmod(0o1777)
    cache = machine.home / "tmp" / "kernels"
    assert machine.run(**{CACHE_VARIABLE: str(cache)})[::2] == ["compiled", str(cache)]


def test_the_users_own_folder_is_closed_to_the_group(machine: Machine) -> None:
    """As a umask of 002 has made it."""
    folder = machine.home / ".cache" / "tidelog"
    folder.mkdir(parents=True)
    folder.chmod(0o775)
    words = machine.run(**{CACHE_VARIABLE: None, "HOME": str(machine.home)})
    assert words[::2] == ["compiled", str(folder / "kernels")]
    assert folder.stat().st_mode & 0o777 == 0o755


class _Runs:
    """What runs a command when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._trace),)


def test_nothing_in_a_file_runs_when_it_is_read(warm: Machine) -> None:
    payload = pickle.dumps(_Runs(warm.home / "ran"))
    (file,) = warm.files()
    file.write_bytes(hashlib.sha256(payload).digest() + payload)
    assert warm.run()[0] == "compiled"
    assert not (warm.home / "ran").exists()


@needs_root
def test_a_folder_that_another_user_has_put_in_its_place_is_not_read(machine: Machine) -> None:
    path = machine.cache / "a.kernel"
    machine.cache.mkdir(mode=0o700)
    write_kept(path, b"code")
    assert read_kept(path) == b"code"
    machine.cache.rename(machine.home / "before")
    shutil.copytree(machine.home / "before", machine.cache)
    os.chown(machine.cache, NOBODY, NOBODY)
    assert read_kept(path) is None


def test_a_file_that_is_not_ones_own_is_not_read(machine: Machine) -> None:
    path = machine.cache / "a.kernel"
    machine.cache.mkdir(mode=0o700)
    write_kept(path, b"code")
    path.chmod(0o622)
    assert read_kept(path) is None
    path.chmod(0o600)
    path.rename(machine.home / "elsewhere")
    path.symlink_to(machine.home / "elsewhere")
    assert read_kept(path) is None
    path.unlink()
    os.mkfifo(path)
    assert read_kept(path) is None


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_a_file_of_another_form_is_none_of_ours(cut: int) -> None:
    whole = pack(KeptCode("library", "entry", "environment", ("first", "second"), b"code", b"bitcode"))
    assert unpack(whole) is not None
    assert unpack(whole[:cut]) is unpack(whole + b"x") is None


# -- addresses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", [b"", bytearray(), memoryview(b""), np.empty(0, np.uint8)])
def test_nothing_has_an_address_too(empty: Any) -> None:
    assert address_of(empty)[1] == 0


# -- checksums ---------------------------------------------------------------------------------------------------------

RANDOM = np.random.default_rng(7).integers(0, 256, 12_000, np.uint8).tobytes()


@pytest.mark.parametrize("kernel", [crc32c, crc32c_portable], ids=["by instruction", "by tables"])
def test_crc32c_of_any_size_and_address_is_the_packages(kernel: Callable[[int, int], int]) -> None:
    start, _ = address_of(RANDOM)
    for size in range(2001):
        shift = size % 16
        assert kernel(start + shift, size) == judge.crc32c(RANDOM[shift : shift + size])
    for shift in range(64):
        for size in (0, 1, 7, 8, 9, 255, 256, 767, 768, 769, 1536, 4000, 8191):
            assert kernel(start + shift, size) == judge.crc32c(RANDOM[shift : shift + size])


def test_crc32_of_messages_is_that_of_zlib() -> None:
    for size in range(300):
        message = build_message_set(1, [NewRecord(b"k", RANDOM[:size], 5)])
        assert int.from_bytes(message[12:16], "big") == zlib.crc32(message[16:])
        for shift in range(3):
            entry = memoryview(bytes(shift) + message)[shift:]
            assert scan_headers(entry, verify=True).checksums.tolist() == [Checksum.RIGHT]
        message[-1] ^= 1
        assert scan_headers(message, verify=True).checksums.tolist() == [Checksum.WRONG]
