"""Apache Kafka as judge of directories: would a broker start on them, and with which topics and offsets.

    with StartJudge() as judge:
        judge.start((first, second, third), is_dynamic=False)      Started({"orders": {0: (0, 300)}}), or its reason

One JVM starts many brokers, one after the other; each changes the directories it is given. A broker that gives up
leaves something behind in the JVM, so after some of them a new one is taken.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

from tests.compat.broker import HOST, SETTINGS, free_ports, listeners
from tests.compat.kafka_tools import JVM_OPTIONS, jars

SOURCE = Path(__file__).parent / "kafka" / "StartJudge.java"
STARTS = 40  # in one JVM
QUICK = {
    "broker.session.timeout.ms": 1_000,
    "broker.heartbeat.interval.ms": 100,
    "controller.quorum.election.timeout.ms": 200,
    "controller.quorum.fetch.timeout.ms": 500,
    "controlled.shutdown.enable": "false",
    "num.network.threads": 1,
    "num.io.threads": 2,
    "num.recovery.threads.per.data.dir": 1,
    "background.threads": 1,
    "log.index.size.max.bytes": 8_192,
    "initial.broker.registration.timeout.ms": 20_000,
    "log.cleaner.dedupe.buffer.size": 2 << 20,
    "log.cleaner.backoff.ms": 600_000,
    "log.initial.task.delay.ms": 600_000,
    # Nothing is due that would write into the logs.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 600_000,
    "transactional.id.expiration.ms": 2_000_000_000,
    "offsets.retention.minutes": 2_000_000,
}

Offsets = tuple[int, int]  # the first of a partition, and the one behind its last


class Judged(NamedTuple):
    """What became of a broker. A partition that nobody leads has no offsets."""

    error: str | None
    topics: Mapping[str, Mapping[int, Offsets | None]]


class Late(Exception):
    """A broker did nothing for two minutes. The machine is busy; try again."""


class StartJudge:
    """A JVM in which brokers are started."""

    def __init__(self, class_path: Sequence[str] = (), options: Sequence[str] = ()) -> None:
        self._command = ["java", *JVM_OPTIONS, "-Xmx768m", *options]
        self._command += ["-cp", ":".join((*class_path, f"{jars()}/*")), str(SOURCE)]
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._left = 0

    def __enter__(self) -> "StartJudge":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def start(self, roots: Sequence[Path], *, is_dynamic: bool) -> Judged:
        """Start a broker on directories, the first with the metadata log, ask it for its topics, and stop it."""
        port, controller_port = free_ports()
        settings = {
            **SETTINGS, **QUICK, "log.dirs": ",".join(map(str, roots)),
            **listeners(port, controller_port, is_dynamic=is_dynamic),
        }  # fmt: skip
        asked = {"settings": {name: str(value) for name, value in settings.items()}, "address": f"{HOST}:{port}"}
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asked).encode() + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, f"the judge ended with {process.wait()}: {self.said()[-2_000:]}"
        answer = json.loads(line)
        if answer.get("late"):
            self._end()
            raise Late(f"the broker neither served nor gave up: {answer['error']}")
        topics = {
            topic: {int(number): tuple(offsets) if offsets else None for number, offsets in partitions.items()}
            for topic, partitions in answer.get("topics", {}).items()
        }
        return Judged(None if answer["started"] else answer["error"], topics)

    def said(self) -> str:
        """What was written to standard error so far."""
        assert self._errors is not None
        return Path(self._errors.name).read_text(encoding="utf-8", errors="replace")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._left == 0:
            self._end()
        if self._process is None:
            self._left = STARTS
            self._errors = tempfile.NamedTemporaryFile()  # noqa: SIM115 -- it is closed with the JVM
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
                env={**os.environ, "LC_ALL": "C.UTF-8"},
            )  # fmt: skip
        self._left -= 1
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        if self._errors is not None:
            self._errors.close()
            self._errors = None
