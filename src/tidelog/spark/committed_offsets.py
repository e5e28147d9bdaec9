"""What a consumer group has committed, out of `__consumer_offsets` among the directories themselves."""

from collections.abc import Collection

from tidelog.errors import InvalidRequestError
from tidelog.log.names import TopicPartition
from tidelog.view.internal_topics import decode_internal
from tidelog.view.log_dirs import LogDirView

__all__ = ["offsets_of_group"]

_TOPIC = "__consumer_offsets"


def offsets_of_group(logs: LogDirView, group: str, chosen: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The offset that a group goes on with, for each partition where it has one.

    Of records that are not committed nothing is said: Kafka's coordinator does not answer with them either.
    """
    if _TOPIC not in logs.topics:
        raise InvalidRequestError(
            f"group:{group} is looked up in {_TOPIC}, which is not among the directories: name the whole root"
        )
    found: dict[TopicPartition, int] = {}
    is_known = False
    for partition in logs[_TOPIC]:
        for record in partition.read(committed=True):
            decoded = decode_internal(_TOPIC, record)
            key = decoded.key
            if decoded.type != "OffsetCommit" or key is None or key["group"] != group:
                continue
            is_known = True
            of = TopicPartition(key["topic"], key["partition"])
            if of not in chosen:
                continue
            if decoded.value is None:
                found.pop(of, None)  # expired, or deleted
            else:
                found[of] = decoded.value["offset"]
    if not is_known:
        raise InvalidRequestError(f"group {group!r} has committed no offset in {_TOPIC}")
    return found
