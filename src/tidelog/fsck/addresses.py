"""Directories in object stores: a check reads them where they are; only a repair needs a disk."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.errors import InvalidRequestError
from tidelog.log.local_files import LocalFileSystem
from tidelog.view.addresses import ensure_no_address, is_address, local_path

if TYPE_CHECKING:
    from tidelog.log.files import ReadFileSystem

__all__ = ["ensure_no_address", "file_system_of", "is_address", "local_path"]


def file_system_of(paths: Sequence[str]) -> "ReadFileSystem":
    """The file system of some paths, which must be one."""
    schemes = {path.partition("://")[0] if is_address(path) else "" for path in paths}
    if schemes <= {""}:
        return LocalFileSystem()  # which, as root, reads through no link of another user
    if len(schemes) > 1:
        raise InvalidRequestError(
            f"{', '.join(paths)}: directories of several file systems are not checked together; check them one by one"
        )
    from tidelog.view.remote_files import files_at

    return files_at(paths[0], None, None)[0]
