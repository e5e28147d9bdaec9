"""Machine code that was compiled once is found again, without numba, and believed only if it is whole."""

import os
import subprocess
import sys
from ctypes import addressof, c_int64
from pathlib import Path

import pytest

import tidelog
from tidelog.kernels import catalogue, machine_code
from tidelog.kernels.cache import CACHE_VARIABLE, cache_directory
from tidelog.kernels.log_lines import write_lines
from tidelog.kernels.standalone import StandaloneKernel

SOURCES = Path(tidelog.__file__).parents[1]

# A kernel that adds up words until the first zero. It is compiled or found, and says what was imported for it.
USE = """
import sys
from ctypes import addressof, c_int64
from tidelog.kernels import machine_code

def total(address):
    result = 0
    while word_at(address, 0):
        result += word_at(address, 0)
        address += 8
    return result

entry = machine_code.kept("__main__.total")
how = "kept"
if entry is None:
    from tidelog.kernels.memory import word_at
    from tidelog.kernels.standalone import standalone
    entry, how = standalone(total), "compiled"
words = (c_int64 * 4)(40, -5, 7, 0)
print(how, entry(addressof(words)), *({"numba", "numpy"} & set(sys.modules)))
"""


def use(cache: Path | str, **environment: str) -> list[str]:
    """What a new process says of the kernel."""
    done = subprocess.run(
        [sys.executable, "-c", USE],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCES), CACHE_VARIABLE: str(cache), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the kernel in it."""
    folder = tmp_path_factory.mktemp("kernels")
    folder.chmod(0o700)
    assert use(folder)[:2] == ["compiled", "42"]
    return folder


def test_a_second_process_needs_neither_numba_nor_numpy(filled: Path) -> None:
    assert use(filled) == ["kept", "42"]


def test_code_that_lost_a_bit_is_compiled_again(filled: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir(mode=0o700)
    (kept,) = filled.glob("__main__.total-*.code")
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    (folder / kept.name).write_bytes(content)
    assert use(folder)[:2] == ["compiled", "42"]
    assert use(folder) == ["kept", "42"]


def test_code_of_other_settings_is_not_taken(filled: Path) -> None:
    assert use(filled, NUMBA_OPT="1")[:2] == ["compiled", "42"]


def test_without_a_private_folder_the_kernel_still_works(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    folder.chmod(0o777)  # anybody could put code there
    assert use(folder)[:2] == ["compiled", "42"]
    assert list(folder.iterdir()) == []


def test_what_was_compiled_is_known_to_be_kept(filled: Path, tmp_path: Path) -> None:
    assert machine_code.is_kept(filled, "__main__.total")
    assert not machine_code.is_kept(filled, "__main__.other")
    assert not write_lines.is_kept(tmp_path)
    write_lines.compile()
    directory = cache_directory()
    assert directory is None or write_lines.is_kept(directory)


def test_warming_up_includes_such_kernels() -> None:
    assert write_lines in catalogue.kernels()
    assert isinstance(write_lines, StandaloneKernel)
    assert write_lines.name == "log_lines.write_lines"


def test_linked_code_is_called_from_any_thread_at_once() -> None:
    from concurrent.futures import ThreadPoolExecutor

    from tidelog.kernels.line_templates import SLOTS, Slot

    assert write_lines.compile() is not None
    entry = machine_code.kept(write_lines.name) or write_lines.compiled

    def run_on_nothing(_: int) -> tuple[int, int]:
        slots = (c_int64 * SLOTS)()
        return entry(addressof(slots)), slots[Slot.DONE]

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(run_on_nothing, range(200))) == {(0, 0)}
