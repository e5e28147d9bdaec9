"""Several roots as one: every partition once, whichever of its copies is read (copies.py)."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack, overload

from tidelog.errors import InvalidRequestError
from tidelog.log.names import TopicPartition
from tidelog.view.copies import Copy, chosen_first, copy_of, ensure_agreement
from tidelog.view.partition import PartitionView
from tidelog.view.root import PartitionDirectory, RootView

if TYPE_CHECKING:
    from tidelog.view.scan import Scan, ScanOptions

__all__ = ["LogDirView"]


class LogDirView:
    """A read-only view of directories. It shows what is there when it is first asked; `refresh` looks again."""

    def __init__(self, roots: Sequence[RootView], replica: str | None = None) -> None:
        self.roots = tuple(roots)
        self._replica = replica  # the path of the root that is read, whatever lies in the others
        self._views: dict[TopicPartition, tuple[PartitionView, ...]] = {}

    def __repr__(self) -> str:
        return f"LogDirView({', '.join(repr(root.path) for root in self.roots)})"

    def refresh(self) -> "LogDirView":
        """The same directories, looked at anew."""
        return LogDirView([root.refresh() for root in self.roots], self._replica)

    # -- what there is -------------------------------------------------------------------------------------------

    @cached_property
    def _directories(self) -> dict[TopicPartition, list[tuple[RootView, PartitionDirectory]]]:
        """Where each partition lies."""
        found: dict[TopicPartition, list[tuple[RootView, PartitionDirectory]]] = {}
        for root in self.roots:
            for directory in root.logs:
                found.setdefault(directory.topic_partition, []).append((root, directory))
        for partition, places in found.items():
            if len(places) > 1 and any(directory.mark is not None for _, directory in places):
                names = ", ".join(f"{root.path}/{directory.name}" for root, directory in places)
                raise InvalidRequestError(
                    f"{names}: what was deleted or set aside is no copy of {partition}; open it alone"
                )
        return found

    @cached_property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions, in order."""
        return tuple(
            sorted(
                partition
                for partition, places in self._directories.items()
                if any(self._replica in (None, root.path) for root, _ in places)
            )
        )

    @cached_property
    def _numbers(self) -> dict[str, list[int]]:
        """The partitions of each topic."""
        numbers: dict[str, list[int]] = {}
        for topic, number in self.partitions:
            numbers.setdefault(topic, []).append(number)
        return numbers

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics, in order."""
        return tuple(self._numbers)

    def __len__(self) -> int:
        return len(self.partitions)

    def __iter__(self) -> Iterator[PartitionView]:
        return (self._view(partition) for partition in self.partitions)

    def __contains__(self, key: object) -> bool:
        return key in self.partitions or key in self.topics

    @overload
    def __getitem__(self, key: tuple[str, int]) -> PartitionView: ...

    @overload
    def __getitem__(self, key: str) -> tuple[PartitionView, ...]: ...

    def __getitem__(self, key: tuple[str, int] | str) -> PartitionView | tuple[PartitionView, ...]:
        """A partition, or all partitions of a topic."""
        if not isinstance(key, str) and not (isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str)):
            raise InvalidRequestError(f"{key!r} names no partition: write logs['orders', 0], or logs['orders'] for all")
        topic = key if isinstance(key, str) else key[0]
        numbers = self._numbers.get(topic)
        if not numbers:
            raise InvalidRequestError(f"there is no topic {topic!r} in {self._places}{self._nearest(topic)}")
        if isinstance(key, str):
            return tuple(self._view(TopicPartition(topic, number)) for number in numbers)
        if key[1] not in numbers:
            there = ", ".join(map(str, numbers[:10])) + (" ..." if len(numbers) > 10 else "")
            raise InvalidRequestError(f"{topic} has no partition {key[1]!r} in {self._places}; it has {there}")
        return self._view(TopicPartition(topic, key[1]))

    @property
    def _places(self) -> str:
        return self._replica or ", ".join(root.path for root in self.roots)

    def _nearest(self, topic: str) -> str:
        near = get_close_matches(topic, self.topics, 1)
        return f"; do you mean {near[0]!r}?" if near else ""

    @property
    def notices(self) -> tuple[str, ...]:
        """What is odd about the directories of the partitions, all together."""
        found = [*self.unfinished_writes]
        for partition in self.partitions:
            found += self._notices_of(partition)
        return tuple(dict.fromkeys(found))

    @property
    def unfinished_writes(self) -> tuple[str, ...]:
        """What to tell readers of writes into the roots that are under way or were interrupted, one line each.

        Raises CheckpointError for a journal that this release cannot read: which records it hides is not known.
        """
        return tuple(notice for root in self.roots if (notice := root.unfinished_notice) is not None)

    def _notices_of(self, partition: TopicPartition) -> Iterator[str]:
        chosen, *others = self._copies(partition)
        yield from chosen.notices
        for copy in (copy_of(view, is_chosen=False) for view in others if self._replica is None):
            if copy.problem is not None:
                yield f"{copy.path} is a copy of {partition} that cannot be read: {copy.problem}"

    # -- copies --------------------------------------------------------------------------------------------------

    def copies(self, topic: str, partition: int) -> tuple[Copy, ...]:
        """The directories that hold a copy of a partition, the one that is read first."""
        self[topic, partition]  # says so if there is none
        views = self._copies(TopicPartition(topic, partition))
        return tuple(copy_of(view, is_chosen=number == 0) for number, view in enumerate(views))

    def _copies(self, partition: TopicPartition) -> tuple[PartitionView, ...]:
        """All copies, the one that is read first."""
        if partition not in self._views:
            found = [PartitionView(root, directory) for root, directory in self._directories[partition]]
            chosen, *others = self._views[partition] = chosen_first(found, self._replica)
            if others and self._replica is None:
                chosen.check_before_reading(lambda view: ensure_agreement(view, others))
        return self._views[partition]

    def _view(self, partition: TopicPartition) -> PartitionView:
        return self._copies(partition)[0]

    # -- tables --------------------------------------------------------------------------------------------------

    def scan(self, topics: str | Sequence[str] | None = None, **options: "Unpack[ScanOptions]") -> "Scan":
        """The records of some topics, or of all, as Arrow batches; the options are those of `Scan.of`."""
        from tidelog.view.scan import Scan

        wanted = self.topics if topics is None else _names(topics)
        for topic in wanted:
            self[topic]  # says so if there is none

        def look() -> tuple[PartitionView, ...]:
            logs = self.refresh()
            return tuple(view for topic in wanted if topic in logs.topics for view in logs[topic])

        return Scan.of(look, **options)


def _names(topics: Any) -> tuple[str, ...]:
    """Topics as they were asked for, each once."""
    names = (topics,) if isinstance(topics, str) else tuple(topics) if isinstance(topics, Iterable) else (topics,)
    if not all(isinstance(name, str) for name in names):
        raise InvalidRequestError(f"{topics!r} names no topics: pass a name, or a list of names")
    return tuple(dict.fromkeys(names))
