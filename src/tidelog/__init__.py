"""tidelog: Apache Kafka's message store in Python, the same directories and the same bytes.

    logs = tidelog.open("kafka-logs")      a read-only view of log directories (tidelog.view)

Importing the package costs nothing: numpy, pyarrow and numba are loaded by the rooms that need them
(`tidelog.columns`, `tidelog.kernels`), never by this one.
"""

# Nothing is imported here, not even __future__: Ctrl-C while this file is loaded would be a traceback, because the
# command that handles it is not there yet.
TYPE_CHECKING = False  # for type checkers it is true; typing itself takes time to load
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from typing import Any

    from tidelog.view import LogDirView

__version__ = "0.1.0.dev0"

__all__ = ["__version__", "open"]


def open(
    path: "str | PathLike[str] | Sequence[str | PathLike[str]]",
    *,
    replica: "str | PathLike[str] | None" = None,
    storage_options: "Mapping[str, Any] | None" = None,
    filesystem: "Any" = None,
) -> "LogDirView":
    """A read-only view of log directories: a root, a partition directory, a pattern, an address, or a list of these.

    Nothing in them is changed or locked. `replica` is the root whose copies are read where several roots hold copies of
    a partition; `storage_options` go to the file system that pyarrow makes of an address such as s3://bucket/logs;
    `filesystem` is one that is made already.
    """
    from tidelog.view import opening

    return opening.open(path, replica=replica, storage_options=storage_options, filesystem=filesystem)
