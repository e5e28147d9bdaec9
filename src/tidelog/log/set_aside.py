"""Batches that recovery takes out of a log although they may be sound: they are set aside beside the segments.

    orders-0/set-aside-00000000000000000012-at-4096.batches     what stood in that segment from position 4096 on

Where offsets go back, two writers or a bug have been at work, and no rule says which of the batches is right. Recovery
keeps those before that place, and a person decides about the rest: the file holds plain batches, so a copy of it whose
name ends in `.log` can be read with the usual tools. Kafka ignores such names and removes them with their directory.
"""

from tidelog.errors import InvalidRequestError
from tidelog.log.files import FileSystem, ReadFile, create_anew, join

__all__ = ["SET_ASIDE", "copy_aside", "free_name"]

SET_ASIDE = "set-aside-"
_SUFFIX = ".batches"
_COPIED_AT_ONCE = 1 << 20
_MANY = 10_000


def free_name(fs: FileSystem, directory: str, base_offset: int, position: int) -> str:
    """A path for what stands from `position` on in the segment of a base offset. Nothing is ever overwritten."""
    stem = join(directory, f"{SET_ASIDE}{base_offset:020d}-at-{position}")
    for number in range(_MANY):
        path = f"{stem}.{number}{_SUFFIX}" if number else f"{stem}{_SUFFIX}"
        if fs.stat(path) is None:
            return path
    raise InvalidRequestError(f"{stem}{_SUFFIX}: {_MANY} files of that name exist; move them away, and start again")


def copy_aside(fs: FileSystem, directory: str, base_offset: int, source: ReadFile, start: int, end: int) -> str:
    """Copy a stretch of a `.log` and return its path once it is on the disk under that name."""
    path = free_name(fs, directory, base_offset, start)
    beside = f"{path}.tmp"
    file = create_anew(fs, beside)
    try:
        position = start
        while position < end:
            data = source.read(position, min(_COPIED_AT_ONCE, end - position))
            if not data:
                break
            file.write_at(position - start, data)
            position += len(data)
        file.sync()
    finally:
        file.close()
    fs.rename(beside, path)
    fs.sync_directory(directory)
    return path
