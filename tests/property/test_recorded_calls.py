"""A real process is traced, and the power goes at some of its calls. A sample; `make campaign` judges 1,200."""

import pytest

from tests.property import recorded_calls
from tests.property.recorded_calls import Recorded

needs_strace = pytest.mark.skipif(recorded_calls.why_not_here() is not None, reason=str(recorded_calls.why_not_here()))


@needs_strace
def test_what_power_loss_leaves_of_the_calls_of_a_real_process_is_right() -> None:
    assert recorded_calls.run(1, 20)["recorded-cuts"] >= 20


def hexed(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f'pwrite64(4<{hexed("/d/one/a.log")}>, "{hexed("abc")}", 3, 70) = 2',
         Recorded("write", "/one/a.log", b"ab", 70)),
        (f'renameat(5<{hexed("/d/one")}>, "{hexed("a")}", 5<{hexed("/d/one")}>, "{hexed("b")}") = 0',
         Recorded("rename", "/one/a", target="/one/b")),
        (f'unlink("{hexed("/d/one/a")}") = 0', Recorded("remove", "/one/a")),
        (f"fsync(4<{hexed('/d/one')}>) = 0", Recorded("sync", "/one")),
        (f"ftruncate(4<{hexed('/d/one/x')}>, 12) = 0", Recorded("resize", "/one/x", number=12)),
        (f'write(1<{hexed("/dev/null")}>, "{hexed(".")}", 1) = 1', Recorded("step", "")),
        (f'unlink("{hexed("/elsewhere/a")}") = 0', None),
        (f'unlink("{hexed("/d/one/a")}") = -1 ENOENT (No such file or directory)', None),
        (f'pwrite64(4<{hexed("/d/one/a.log")}>(deleted), "{hexed("abc")}", 3, 70) = 3', None),
    ],
)  # fmt: skip
def test_a_line_of_strace_is_understood(line: str, expected: Recorded | None) -> None:
    assert list(recorded_calls._recorded(f"123 {line}", "/d")) == ([] if expected is None else [expected])


def test_a_call_that_is_not_known_is_an_error() -> None:
    with pytest.raises(AssertionError, match="not known here"):
        list(recorded_calls._recorded(f'123 linkat(4<{hexed("/d/one")}>, "{hexed("a")}") = 0', "/d"))
