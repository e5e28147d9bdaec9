"""`tidelog` in a terminal: a process of its own behind a pseudo-terminal of some width."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from typing import NamedTuple

DEADLINE_S = 120


class Shown(NamedTuple):
    """What a terminal was sent, and the exit code."""

    text: str
    code: int


def in_terminal(*words: str, columns: int = 80, **environment: str) -> Shown:
    """Run a command whose three streams are a terminal; its answer without carriage returns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog", *words],
        stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm", **environment},
    )  # fmt: skip
    os.close(theirs)
    parts = []
    try:
        while data := _read(ours):
            parts.append(data)
        return Shown(b"".join(parts).decode().replace("\r\n", "\n"), process.wait(DEADLINE_S))
    finally:
        os.close(ours)
        process.kill()
        process.wait()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # the other side is closed
        return b""
