"""A cluster of Apache Kafka: a controller and brokers that follow it, each with a root and a process of its own.

    with Cluster(tmp_path, brokers=2) as cluster:     started
        cluster.brokers[0].kill()
        cluster.brokers[0].start()
    cluster.controller.root                           stopped in good order; a root that holds metadata alone

Formatting takes two seconds a node, a start about as long.
"""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.compat.broker import HOST, Broker, free_ports, wait_for

CONTROLLER_ID = 1
# A broker that was killed is fenced soon, and none is on a machine that is merely busy.
SETTINGS = {"broker.heartbeat.interval.ms": 200, "broker.session.timeout.ms": 3_000}


class Node(Broker):
    """A node that is either the controller or a broker."""

    def __init__(
        self, root: Path, node_id: int, controller_port: int, settings: Mapping[str, object] | None = None
    ) -> None:
        self.node_id = node_id
        self.is_controller = node_id == CONTROLLER_ID
        port = controller_port if self.is_controller else free_ports()[0]
        name = "CONTROLLER" if self.is_controller else "PLAINTEXT"
        of_node = {
            "node.id": node_id,
            "process.roles": "controller" if self.is_controller else "broker",
            "listeners": f"{name}://{HOST}:{port}",
        }
        super().__init__(root, {**SETTINGS, **(settings or {}), **of_node}, ports=(port, controller_port))

    def start(self) -> None:
        """Return when it listens and, if it is a broker, clients are told of it."""
        self._launch()
        try:
            wait_for(lambda: self._accepts() or self._has_ended(), "the node listens")
            if not self.is_controller:
                admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
                wait_for(lambda: self._has_ended() or self._is_known(admin), "the broker is known")
            assert not self._has_ended(), f"node {self.node_id} ended with {self._exit()}:\n{self._output.read_text()}"
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop it in good order. A controller has no logs that it would mark as closed."""
        self._terminate()
        assert self.is_controller or self.stopped_cleanly(), "the broker did not stop in good order"

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A block during which it does nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _is_known(self, admin: AdminClient) -> bool:
        try:
            return self.node_id in admin.list_topics(timeout=5).brokers
        except KafkaException:
            return False


class Cluster:
    """The nodes, formatted, and running within a block."""

    def __init__(self, folder: Path, brokers: int, settings: Mapping[str, object] | None = None) -> None:
        controller_port = free_ports()[0]
        self.nodes = []
        for node_id in range(CONTROLLER_ID, CONTROLLER_ID + brokers + 1):
            root = folder / f"node{node_id}"
            root.mkdir(parents=True)
            self.nodes.append(Node(root, node_id, controller_port, settings))
            self.nodes[-1].format_roots()
        self.controller, *self.brokers = self.nodes

    @property
    def addresses(self) -> str:
        """What a client calls `bootstrap.servers`."""
        return ",".join(broker.address for broker in self.brokers)

    def __enter__(self) -> "Cluster":
        try:
            for node in self.nodes:
                node.start()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                for node in (*self.brokers, self.controller):
                    node.stop()
        finally:
            self._kill()

    def _kill(self) -> None:
        for node in self.nodes:
            node.kill()
