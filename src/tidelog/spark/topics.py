"""Which partitions a source reads: `subscribe`, `subscribePattern` or `assign`, as in Spark's Kafka source."""

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from tidelog.errors import InvalidRequestError
from tidelog.log.names import TopicPartition
from tidelog.spark.option_values import OptionValues, is_long, parsed_json, shown
from tidelog.view.internal_topics import INTERNAL_TOPICS
from tidelog.view.log_dirs import LogDirView

__all__ = ["TopicChoice", "names_of"]

_MOST_NAMED = 10  # partitions, in a sentence
_WAYS = ("subscribe", "subscribePattern", "assign")


class TopicChoice(NamedTuple):
    """What is asked for; with nothing, every topic but Kafka's own."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    @classmethod
    def of(cls, values: OptionValues) -> "TopicChoice":
        """The choice that options make."""
        given = [way for way in _WAYS if way in values]
        if len(given) > 1:
            raise InvalidRequestError(f"{' and '.join(given)} are given: one of them chooses the topics")
        text = values.text(given[0]) if given else None
        if text is None:
            return cls()
        if not text:
            raise InvalidRequestError(f"{given[0]} is empty: it names no topic")
        if given[0] == "subscribe":
            topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
            if not topics:
                raise InvalidRequestError(f"subscribe {text!r} names no topic")
            return cls(topics=topics)
        if given[0] == "subscribePattern":
            try:
                re.compile(text)
            except re.error as error:
                raise InvalidRequestError(f"subscribePattern {text!r} is no regular expression: {error}") from None
            return cls(pattern=text)
        return cls(partitions=_assigned(text))

    def choose(self, logs: LogDirView) -> list[TopicPartition]:
        """The partitions that are there of those asked for. A topic that is asked for by name must be there."""
        if self.topics:
            for topic in self.topics:
                logs[topic]  # says so if there is none
            return [partition for partition in logs.partitions if partition.topic in self.topics]
        if self.partitions:
            for topic in dict.fromkeys(partition.topic for partition in self.partitions):
                logs[topic]
            return [partition for partition in logs.partitions if partition in self.partitions]
        return [partition for partition in logs.partitions if self._takes(partition.topic, INTERNAL_TOPICS)]

    def ensure_there(self, logs: LogDirView) -> None:
        """Refuse partitions that are asked for one by one and are not there."""
        missing = sorted(set(self.partitions).difference(logs.partitions))
        if missing:
            raise InvalidRequestError(f"assign names {names_of(missing)}: there is no such partition")

    def _takes(self, topic: str, internal: Collection[str]) -> bool:
        if topic in internal:
            return False
        return self.pattern is None or re.search(self.pattern, topic) is not None


def names_of(partitions: Iterable[TopicPartition]) -> str:
    """Partitions in a sentence, not too many of them."""
    names = [str(partition) for partition in sorted(partitions)]
    return (
        ", ".join(names[:_MOST_NAMED]) + (f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else "")
        or "none"
    )


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    try:
        parsed = parsed_json(text)
        pairs = [(topic, number) for topic, numbers in parsed.items() for number in numbers]
        if not all(is_long(number) for _, number in pairs) or not pairs:
            raise ValueError
    except (ValueError, TypeError, AttributeError):
        raise InvalidRequestError(f'assign is written {{"topicA":[0,1],"topicB":[0]}}, not {shown(text)}') from None
    return tuple(dict.fromkeys(TopicPartition(topic, number) for topic, number in pairs))
