"""A real broker of Apache Kafka: one node that is its own controller, over one root directory.

    broker = Broker.format(tmp_path / "root")     a new root, as kafka-storage makes it
    with broker.running():                        started, and stopped in good order behind the block
        ...
    broker.kill()                                 kill -9, in the middle of whatever it was doing
    broker.refuses_to_start()                     whether it gives up
    Broker(root, {"log.cleaner.backoff.ms": 100}) over the same root, with settings of its own

A start takes about five seconds and a stop two, so a test should do all it can while one runs.
"""

import os
import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.compat.kafka_tools import JVM_OPTIONS, jars, run_java

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
TIMEOUT_S = 120
HOST = "127.0.0.1"

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "log.retention.ms": -1,
    # One node holds everything, and internal topics are small.
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
}


class Broker:
    """A broker over `root`, which has been formatted.

    Only one may run over a root. A second gives up, but not before it has harmed the metadata log of the first.
    """

    def __init__(
        self,
        root: Path,
        settings: Mapping[str, object] | None = None,
        jvm_options: Sequence[str] = (*JVM_OPTIONS, "-Xmx512m"),
        *,
        more_roots: Sequence[Path] = (),
        is_dynamic: bool = False,
        ports: tuple[int, int] | None = None,
    ) -> None:
        self.root = root
        self._jvm_options = jvm_options
        self._port, self._controller_port = ports or free_ports()
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = root.parent / f"{root.name}.properties"
        self._output = root.parent / f"{root.name}.output"
        settings = {
            **SETTINGS,
            **listeners(self._port, self._controller_port, is_dynamic=is_dynamic),
            **(settings or {}),
            "log.dirs": ",".join(map(str, (root, *more_roots))),
        }
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")

    @classmethod
    def format(
        cls,
        root: Path,
        settings: Mapping[str, object] | None = None,
        *,
        more_roots: Sequence[Path] = (),
        is_dynamic: bool = False,
    ) -> "Broker":
        """A broker over a new root, or several; the first has the metadata log."""
        broker = cls(root, settings, more_roots=more_roots, is_dynamic=is_dynamic)
        broker.format_roots("--standalone" if is_dynamic else None)
        return broker

    def format_roots(self, option: str | None = None) -> None:
        """Make new roots its own, as kafka-storage does."""
        options = [] if option is None else [option]
        done = run_java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._settings), *options)
        assert done.exit == 0, done.stderr

    @property
    def address(self) -> str:
        """What a client calls `bootstrap.servers`."""
        return f"{HOST}:{self._port}"

    def cpu_seconds(self) -> float:
        """What its process has used so far, of all its threads."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # in user and in system mode

    @contextmanager
    def running(self) -> Iterator["Broker"]:
        """Start it, and stop it in good order. Whatever goes wrong, no process is left behind."""
        self.start()
        try:
            yield self
            self.stop()
        finally:
            self.kill()

    def start(self) -> None:
        """Return when every partition of every topic has a leader."""
        self._launch()
        try:
            wait_for(lambda: self._accepts() or self._has_ended(), "the broker listens")
            admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
            wait_for(lambda: self._has_ended() or _all_have_leaders(admin), "all partitions have leaders")
            assert not self._has_ended(), f"the broker ended with {self._exit()}:\n{self._output.read_text()}"
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop it as an operator does; the marker of a clean stop must be there afterwards."""
        self._terminate()
        assert self.stopped_cleanly(), "the broker did not stop in good order"

    def stopped_cleanly(self) -> bool:
        """Whether it has closed its logs."""
        return (self.root / ".kafka_cleanshutdown").exists()

    def kill(self) -> None:
        """End it at once, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(TIMEOUT_S)
            self._process = None

    def refuses_to_start(self) -> bool:
        """Whether it ends by itself, with an error, before it serves anybody."""
        self._launch()
        try:
            wait_for(lambda: self._has_ended() or self._accepts(), "the broker ends or listens")
            return self._has_ended() and self._exit() != 0
        finally:
            self.kill()

    def _launch(self) -> None:
        assert self._process is None, "it runs"
        command = ["java", *self._jvm_options, "-cp", f"{jars()}/*", "kafka.Kafka", str(self._settings)]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C.UTF-8"}
            )

    def _terminate(self) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(TIMEOUT_S)
        finally:
            self.kill()

    def _has_ended(self) -> bool:
        return self._exit() is not None

    def _exit(self) -> int | None:
        assert self._process is not None
        return self._process.poll()

    def _accepts(self) -> bool:
        try:
            socket.create_connection((HOST, self._port), timeout=1).close()
        except OSError:
            return False
        return True


def listeners(port: int, controller_port: int, *, is_dynamic: bool) -> dict[str, object]:
    """The settings of a node that is its own quorum, as to where it listens."""
    controller = f"{HOST}:{controller_port}"
    quorum = {"bootstrap.servers": controller} if is_dynamic else {"voters": f"1@{controller}"}
    return {
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{controller}",
        **{f"controller.quorum.{name}": value for name, value in quorum.items()},
    }


def _all_have_leaders(admin: AdminClient) -> bool:
    try:
        found = admin.list_topics(timeout=5)
    except KafkaException:
        return False
    leaders = [part.leader for topic in found.topics.values() for part in topic.partitions.values()]
    return bool(found.brokers) and all(leader >= 0 for leader in leaders)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Look until a condition holds; `what` is what was hoped for."""
    assert comes_true(condition, TIMEOUT_S), f"{what}: not within {TIMEOUT_S} s"


def comes_true(condition: Callable[[], bool], within_s: float) -> bool:
    """Look until a condition holds, or the time is up."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)  # between two looks
    return True


def free_ports() -> tuple[int, int]:
    """Two ports that nobody listens on, below those that systems hand out to clients."""
    rng = random.SystemRandom()  # tests run beside each other, and are seeded alike
    ports: list[int] = []
    while len(ports) < 2:
        port = rng.randrange(15_000, 30_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports[0], ports[1]
