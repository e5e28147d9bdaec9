"""How a command ends when its reader leaves (`| head`), was never there (`>&-`), and when a person presses Ctrl-C.

The first and the last are ordinary ends: nothing is wrong, and no traceback is shown.
"""

import fcntl
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

__all__ = [
    "INTERRUPTED",
    "are_streams_open",
    "end_when_stuck",
    "flush_output",
    "is_reader_gone",
    "let_go_of_output",
    "noted",
]

INTERRUPTED = 130  # the exit code of a shell for SIGINT
_GRACE_S = 2.0
_noted = threading.Event()

Handler = Callable[[int, FrameType | None], object]


# -- the reader of standard output -----------------------------------------------------------------------------------


def are_streams_open() -> bool:
    """Open descriptors 0 to 2 that are closed on /dev/null; whether there was a standard output to write to.

    Otherwise the next file that is opened, perhaps a segment, gets the number of a standard stream, and what a library
    or a child process prints goes into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            os.set_inheritable(number, True)
    # Python makes None of a stream whose descriptor it finds closed; `1<file` opens one to read.
    is_open = sys.stdout is not None and fcntl.fcntl(1, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    sys.stdin = sys.stdin or open(0)  # noqa: SIM115  # it stays open as long as the process runs
    sys.stdout = sys.stdout or open(1, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w")  # noqa: SIM115
    return is_open


def is_reader_gone() -> bool:
    """Whether nobody reads standard output, or standard error, any more: BrokenPipeError can come from other pipes."""
    return any(_is_broken(stream) for stream in (sys.stdout, sys.stderr))


def _is_broken(stream: object) -> bool:
    try:
        descriptor = stream.fileno()  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def let_go_of_output() -> None:
    """Send what is still in the buffers nowhere: Python would complain about it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if _is_broken(stream):
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def flush_output() -> None:
    """Bring out what is buffered, while a reader that has left can still be ignored."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        let_go_of_output()


# -- Ctrl-C ----------------------------------------------------------------------------------------------------------


def noted(handler: Handler) -> Handler:
    """A handler of SIGINT that says that it was called: Python runs again."""

    def handle(number: int, frame: FrameType | None) -> object:
        _noted.set()
        return handler(number, frame)

    return handle


def end_when_stuck() -> None:
    """End the process if Ctrl-C finds it inside a call that does not come back to Python within two seconds.

    Python's handler runs between two of its own steps. A call into a library that waits for a network takes none, and
    cannot be left: only the process can end. This is for commands that write nothing.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # it is ignored (nohup), or somebody else's
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGINT, noted(signal.default_int_handler))
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), name="tidelog-interrupts", daemon=True).start()


def _watch(reader: int) -> None:
    while numbers := os.read(reader, 64):
        if signal.SIGINT in numbers:
            if not _noted.wait(_GRACE_S):
                os._exit(INTERRUPTED)
            _noted.clear()
