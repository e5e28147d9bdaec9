"""The topic id of a partition directory: the file `partition.metadata`, and how ids are written as text.

    version: 0
    topic_id: OimrddjSTw20XAh5VnF0_A        16 bytes in 22 characters of base64url; no line end behind it

A topic that is deleted and created again has the old name and another id, so the id tells whose data a directory
holds. It is written before the first batch is: data without an id could belong to either.

Kafka: PartitionMetadataFile, PartitionMetadataReadBuffer and Uuid.
"""

import base64
import random
import re
import threading
import uuid

from tidelog.errors import CheckpointError, InconsistentTopicIdError, InvalidRequestError
from tidelog.log.files import FileSystem, ReadFileSystem, write_atomically
from tidelog.log.text_files import read_lines, split_fields, to_number

__all__ = [
    "AFTER_NAME",
    "ZERO_UUID",
    "PartitionMetadataFile",
    "parse_uuid",
    "random_topic_id",
    "read_topic_id",
    "uuid_text",
]

ZERO_UUID = uuid.UUID(int=0)  # Kafka's way to say "no id"

AFTER_NAME = re.compile(r":\s+", re.ASCII)  # between the name and the value of a line
_UUID_TEXT = re.compile(r"[A-Za-z0-9_-]{22}(==)?")


def uuid_text(value: uuid.UUID) -> str:
    """An id as Kafka writes it.

    >>> uuid_text(uuid.UUID("3a29ab75-d8d2-4f0d-b45c-0879567174fc"))
    'OimrddjSTw20XAh5VnF0_A'
    """
    return base64.urlsafe_b64encode(value.bytes)[:22].decode()


def parse_uuid(text: str) -> uuid.UUID:
    """The id that Kafka's text stands for; padding may be there. Raises InvalidRequestError for any other text.

    >>> parse_uuid("OimrddjSTw20XAh5VnF0_A")
    UUID('3a29ab75-d8d2-4f0d-b45c-0879567174fc')
    """
    if not _UUID_TEXT.fullmatch(text):
        raise InvalidRequestError(f"an id is 22 characters of base64url, not {text[:30]!r}")
    return uuid.UUID(bytes=base64.urlsafe_b64decode(f"{text[:22]}=="))


def random_topic_id(rng: random.Random) -> uuid.UUID:
    """A new id, of version 4. Its text never begins with a dash, which a command line would take for an option.

    The ids that Kafka reserves, 0 and 1, are not of version 4 and cannot come up.
    """
    while True:
        value = uuid.UUID(int=rng.getrandbits(128), version=4)
        if not uuid_text(value).startswith("-"):
            return value


def read_topic_id(fs: ReadFileSystem, path: str) -> uuid.UUID | None:
    """The id in a `partition.metadata` file; None if there is no file."""
    if fs.stat(path) is None:
        return None
    first, second, *_ = *read_lines(fs, path), "", ""
    version = _value_of(first, path)
    # Later versions are read too, so that a broker can be downgraded.
    number = to_number(version, 32)
    if number is None or number < 0:
        raise CheckpointError(f"{path}: version {version!r} of partition.metadata; 0 and above are known")
    text = _value_of(second, path)
    try:
        topic_id = parse_uuid(text)
    except InvalidRequestError as error:
        raise CheckpointError(f"{path}: {error}") from error
    if topic_id == ZERO_UUID:
        raise CheckpointError(f"{path}: the topic id is zero")
    return topic_id


def _value_of(line: str, path: str) -> str:
    """The value after the colon. The name before it is not compared, as in Kafka."""
    parts = split_fields(line, AFTER_NAME)
    if len(parts) != 2 or not parts[1]:
        raise CheckpointError(f"{path}: a line of partition.metadata is a name, a colon and a value, not {line!r}")
    return parts[1]


class PartitionMetadataFile:
    """`partition.metadata` of one partition: an id is recorded at once and written when it must be there.

    Who renames the directory sets `path`.
    """

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.path = path
        self._fs = fs
        self._known: uuid.UUID | None = None  # recorded, or found in the file
        self.is_dirty = False  # whether an id was recorded that is not in the file yet
        self._writing = threading.Lock()  # two writers would share one `.tmp`

    def record(self, topic_id: uuid.UUID) -> None:
        """Say whose directory this is. Raises InconsistentTopicIdError if it is another's already."""
        if topic_id == ZERO_UUID:
            raise InvalidRequestError(f"{self.path}: zero is not the id of a topic")
        if self._known is None:
            self._known = read_topic_id(self._fs, self.path)
        if self._known is None:
            self._known = topic_id
            self.is_dirty = True
        elif self._known != topic_id:
            raise InconsistentTopicIdError(
                f"{self.path}: topic id {uuid_text(topic_id)}, but the directory is that of {uuid_text(self._known)}"
            )

    def flush(self) -> None:
        """Write the file if an id was recorded since. The question alone costs nothing: appends ask it every time."""
        if not self.is_dirty:
            return
        with self._writing:
            if self.is_dirty and self._known is not None:
                text = f"version: 0\ntopic_id: {uuid_text(self._known)}"
                write_atomically(self._fs, self.path, text.encode())
                self.is_dirty = False

    def read(self) -> uuid.UUID | None:
        """The id in the file; None if there is no file."""
        return read_topic_id(self._fs, self.path)
