"""Where a source reads: out of `path`, `paths` and `storage.*`, made to mean the same on every machine."""

import logging
import os
import re
import socket
from typing import Any, NamedTuple

import tidelog
from tidelog.errors import InvalidRequestError
from tidelog.spark.option_table import STORAGE_PREFIX
from tidelog.spark.option_values import OptionValues, parsed_json
from tidelog.view.addresses import ensure_spelled
from tidelog.view.log_dirs import LogDirView

__all__ = ["Places"]

_log = logging.getLogger("tidelog.spark")

_NO_PATH = (
    "no path: name a log directory, as in .load('/var/lib/kafka') or .option('path', ...). In SQL, options of "
    "CREATE TABLE ... USING do not reach a Python source; CREATE TEMPORARY VIEW logs USING tidelog "
    "OPTIONS (path '/var/lib/kafka') works"
)
_S3 = ("s3a://", "s3n://")  # as Hadoop calls it
_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{1,9})?")
_NUMBERS = {  # of pyarrow's file systems; whatever else has digits only, a key or an id, is a text
    "buffer_size",
    "connect_timeout",
    "default_block_size",
    "load_frequency",
    "port",
    "replication",
    "request_timeout",
}


class Places(NamedTuple):
    """The directories of a source. It can be pickled."""

    paths: tuple[str, ...]
    replica: str | None = None
    storage: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, values: OptionValues, *, no_path: str = _NO_PATH) -> "Places":
        """The directories that options name, made absolute here: a worker runs in another directory.

        `no_path` is said if they name none.
        """
        paths = [*_listed(values.text("paths")), *_listed(values.text("path"))]
        if not paths:
            raise InvalidRequestError(no_path)
        replica = values.text("replica")
        storage = tuple((name, _value(name, text)) for name, text in sorted(values.below(STORAGE_PREFIX).items()))
        return cls(
            tuple(dict.fromkeys(_absolute(path) for path in paths)),
            None if replica is None else _absolute(replica),
            storage,
        )

    @property
    def is_remote(self) -> bool:
        """Whether any of them is an address."""
        return any("://" in path for path in self.paths)

    def open(self) -> LogDirView:
        """A view of the directories; an error says which machine has looked for them. Logs unfinished writes."""
        try:
            logs = tidelog.open(self.paths, replica=self.replica, storage_options=dict(self.storage) or None)
            for notice in logs.unfinished_writes:
                _log.warning("%s", notice)
            return logs
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{error} (looked for on {socket.gethostname()})") from error


def _listed(text: str | None) -> list[str]:
    """Paths out of a JSON list, which `.load([...])` sends, or with commas between them."""
    if not text:
        return []
    if text.startswith("["):
        try:
            paths = parsed_json(text)
        except ValueError:
            paths = None  # a pattern such as [ab]-logs
        if isinstance(paths, list) and all(isinstance(path, str) for path in paths):
            return [path.strip() for path in paths if path.strip()]
    if os.path.isdir(text):
        return [text]  # a name with a comma in it
    return [part.strip() for part in text.split(",") if part.strip()]


def _absolute(path: str) -> str:
    for scheme in _S3:
        if path.startswith(scheme):
            return "s3://" + path[len(scheme) :]
    if path.startswith("file://"):
        path = _local_path(path)
    elif path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")  # as Hadoop writes it
    if "://" in path:
        return path
    ensure_spelled(path)
    return os.path.abspath(os.path.expanduser(path))


def _local_path(address: str) -> str:
    """What a file address means, as the rest of the package understands it."""
    from tidelog.view.remote_files import files_at

    return files_at(address, None, None)[1]


def _value(name: str, text: str) -> Any:
    """The value of a storage option, which is a text in Spark and sometimes a number or yes and no for pyarrow."""
    if name in _NUMBERS and _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    return text.lower() == "true" if text.lower() in ("true", "false") else text
