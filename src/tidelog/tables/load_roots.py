"""Load rows into a topic across all log directories of a broker, each partition in the directory that holds it.

    with LoadRoots(["/d1", "/d2"], "orders", config, ...) as roots:
        logs = roots.logs([0, 3])     # of both directories
        ...
        roots.finish()                # without it everything is taken back, in all of them

A new partition goes into the directory with the fewest logs, as with a broker. A partition that is in two directories
is rejected: Kafka does not start on such a pair.

A load is atomic across all directories. `finish` flushes everything in all of them, and each journal lists them. Then
the journals are removed; removing the first one decides the load. A recovery that finds another journal later checks
whether the first is still there (`settle_load`). Taking a load back removes them in the opposite order, the first one
last.
"""

import random
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from types import TracebackType

from tidelog.errors import InvalidRequestError, StorageError, TidelogError
from tidelog.log.clock import Clock
from tidelog.log.config import LogConfig
from tidelog.log.files import FileSystem
from tidelog.log.names import TopicPartition
from tidelog.log.partition_metadata import random_topic_id, uuid_text
from tidelog.log.unified_log import UnifiedLog
from tidelog.log.write_journal import LoadGroup
from tidelog.tables.assignment import Assignment, assignment_of
from tidelog.tables.broker_dirs import BrokerDirs
from tidelog.tables.load_root import LoadRoot
from tidelog.tables.stray_topics import stray_warning

__all__ = ["LoadRoots"]


class LoadRoots:
    """The log directories of a broker, locked for a load. `are_all`: they are known to be all that it has."""

    def __init__(
        self,
        paths: Sequence[str],
        topic: str,
        config: LogConfig,
        *,
        fs: FileSystem,
        clock: Clock,
        rng: random.Random,
        on_notice: Callable[[str], None] = lambda sentence: None,
        are_all: bool = False,
    ) -> None:
        if not paths:
            raise InvalidRequestError("no log directory is named")
        self.clock = clock
        self._topic = topic
        self._rng = rng
        self._fs = fs
        self._on_notice = on_notice
        self._roots = [
            LoadRoot(path, topic, config, fs=fs, clock=clock, rng=rng, on_notice=on_notice) for path in paths
        ]
        for number, root in enumerate(self._roots):
            if root.path in [other.path for other in self._roots[:number]]:
                raise InvalidRequestError(f"{root.path} is named twice")
        self._dirs = BrokerDirs(fs, [root.path for root in self._roots], are_all=are_all)
        self.assignment: Assignment | None = None  # of the topic, if the metadata log lists it
        self._homes: dict[int, LoadRoot] = {}  # the directory of each partition
        self._counts: dict[str, int] = {}  # logs by directory

    def __enter__(self) -> "LoadRoots":
        with ExitStack() as held:
            for root in self._roots:
                held.enter_context(root)
            self._dirs.ensure_one_broker()
            self._ensure_no_duplicates()
            for root in self._roots:
                self._counts[root.path] = root.log_count
                self._homes.update(dict.fromkeys(root.there, root))
            self.there = frozenset(self._homes)
            held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        problem: TidelogError | None = None
        for root in reversed(self._roots):
            if problem is not None:
                root.leave_undecided()  # without its journal, what was not taken back would look decided
            try:
                root.__exit__(kind, error, trace)
            except TidelogError as second:
                problem = problem or second
        if problem is not None:
            raise problem

    def _ensure_no_duplicates(self) -> None:
        found: dict[TopicPartition, LoadRoot] = {}
        for root in self._roots:
            for partition in root.partitions:
                other = found.setdefault(partition, root)
                if other is not root:
                    raise InvalidRequestError(
                        f"{partition} is in {other.path} and in {root.path}: Kafka does not start on them; "
                        f"`tidelog diff {other.path} {root.path}` compares the two, move one away"
                    )

    def settle_topic_id(self, wanted: uuid.UUID | None) -> None:
        """Choose the topic id. A new topic gets one; an old one may predate topic ids and have none."""
        known = {topic_id for root in self._roots for topic_id in root.topic_ids}
        if wanted is not None and known - {wanted}:
            raise InvalidRequestError(f"the topic {self._topic} has another id already; leave --topic-id out")
        if len(known) > 1:
            raise InvalidRequestError(
                f"partitions of {self._topic} have different topic ids: `tidelog fsck` shows them"
            )
        paths = [root.path for root in self._roots]
        assigned = self._assignment(paths)
        if assigned is not None and wanted not in (None, assigned.topic_id) and not known:
            raise InvalidRequestError(
                f"--topic-id: the cluster knows {self._topic} by the id {uuid_text(assigned.topic_id)}; leave "
                "--topic-id out"
            )
        topic_id = next(iter(known), None) or wanted
        if topic_id is None and not self.there:
            topic_id = random_topic_id(self._rng) if assigned is None else assigned.topic_id
        if assigned is not None and topic_id in (None, assigned.topic_id):  # a topic of another id is another topic
            self.assignment = assigned
        for root in self._roots:
            root.use_topic_id(topic_id)
        new = [] if self.there or wanted is not None else [self._topic]
        warning = stray_warning(self._fs, paths, {self._topic: topic_id}, new)
        if warning is not None:
            self._on_notice(warning)

    def _assignment(self, paths: Sequence[str]) -> Assignment | None:
        try:
            return assignment_of(self._fs, paths, self._topic)
        except TidelogError as error:
            self._on_notice(
                f"the partitions of {self._topic} are counted by their directories, since what the cluster knows of it "
                f"cannot be read: {error}"
            )
            return None

    @property
    def may_lack_some(self) -> bool:
        """Whether other directories of the broker may hold more partitions, and no metadata log here can tell."""
        return self._dirs.may_lack_some

    def logs(self, numbers: Iterable[int]) -> dict[int, UnifiedLog]:
        """The logs of partitions, opened or created. Those that are opened now are in a journal when this returns."""
        by_home: dict[str, list[int]] = {}
        for number in sorted(set(numbers)):
            by_home.setdefault(self._home_of(number).path, []).append(number)
        roots = {root.path: root for root in self._roots}
        return {number: log for path, some in by_home.items() for number, log in roots[path].logs(some).items()}

    def _home_of(self, number: int) -> LoadRoot:
        """The directory of a partition; of a new one that with the fewest logs (Kafka: LogManager.nextLogDirs)."""
        if number not in self._homes:
            self._dirs.ensure_creatable(TopicPartition(self._topic, number))
            home = min(self._roots, key=lambda root: self._counts[root.path])
            self._homes[number] = home
            self._counts[home.path] += 1
        return self._homes[number]

    def finish(self) -> None:
        """Flush everything in all directories, and commit the load by removing the first journal."""
        changed = [root for root in self._roots if root.has_journal]
        if len(changed) < 2:
            for root in changed:
                root.prepare()
            for root in self._roots:
                root.conclude()
            return
        paths, load_id = tuple(root.path for root in changed), f"{self._rng.getrandbits(128):032x}"
        first_ends = changed[0].ends
        for number, root in enumerate(changed):
            root.prepare(LoadGroup(load_id, number, paths, first_ends if number else {}))
        self._decide(changed[0], " ".join(paths))
        for root in changed[1:]:
            try:
                root.conclude()
            except TidelogError as error:
                raise StorageError(
                    f"{error}; all rows are loaded, and `tidelog recover {' '.join(paths)}` finishes it"
                ) from error

    def _decide(self, first: LoadRoot, names: str) -> None:
        """Commit the load in the first directory, and so in all.

        If that fails, the journal may be removed, or removed until the power is lost. Nothing is taken back before it
        is durably there again: without it the load counts as committed in the other directories.
        """
        for root in self._roots:
            root.leave_undecided()  # from here on the journals alone decide
        try:
            first.conclude()
        except BaseException as error:
            try:
                first.put_journal_back()
            except (TidelogError, KeyboardInterrupt) as second:
                raise StorageError(
                    f"{str(error) or 'interrupted'}; whether the rows are loaded is open, and they could not be taken "
                    f"back ({str(second) or 'interrupted'}): run `tidelog recover {names}`, which leaves all of them "
                    "there or none, and look which before you load them again"
                ) from error
            for root in self._roots:
                root.resume()
            raise
