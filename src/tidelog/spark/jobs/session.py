"""The Spark session of a job: the one that is there, or a new one whose workers have this very Python."""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tidelog.errors import InvalidRequestError, UnsupportedError
from tidelog.spark.jobs.tasks import plain_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkWishes", "java_command", "session_for"]

_NO_JAVA = (
    "Spark needs Java 17 or newer, and there is none: install one (Debian: apt install openjdk-17-jre-headless, "
    "macOS: brew install openjdk@17) or set JAVA_HOME"
)
_NO_PYSPARK = "Spark is not installed: pip install 'tidelog[spark]'"
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set by spark-submit, which has started the JVM before us
_QUIET = {"spark.ui.showConsoleProgress": "false", "spark.sql.execution.arrow.pyspark.enabled": "true"}
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    "spark.python.unix.domain.socket.enabled": "true",  # a task costs a third of what it does over TCP
}


class SparkWishes:
    """How Spark is to be started."""

    def __init__(
        self,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        packages: Sequence[str] = (),
        *,
        verbose: bool = False,
        may_be_killed: bool = False,
    ) -> None:
        self.master = master
        self.conf = dict(conf or {})
        self.packages = tuple(packages)
        self.may_be_killed = may_be_killed  # when it is interrupted: the job only reads
        self.verbose = verbose  # let Spark's own log through to standard error

    @property
    def is_local(self) -> bool:
        """Whether everything runs in one process here."""
        return self.master is None or self.master.startswith("local")


@contextmanager
def session_for(name: str, wishes: SparkWishes) -> "Iterator[SparkSession]":
    """A session, stopped at the end if it was begun here."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UnsupportedError(_NO_PYSPARK) from error
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    if _SUBMITTED in os.environ:
        if wishes.packages or wishes.master:
            raise InvalidRequestError(
                "Spark runs already: give --master and --packages to spark-submit, before the script"
            )
        session = _configured(SparkSession.builder.appName(name), {**_QUIET, **wishes.conf}).getOrCreate()
    else:
        try:
            session = _started(name, wishes)
        except KeyboardInterrupt:
            _has_killed_jvm()
            raise
    try:
        yield session
    except KeyboardInterrupt:
        if not wishes.may_be_killed or not _has_killed_jvm():
            session.stop()
        raise
    except BaseException:
        session.stop()
        raise
    session.stop()


def _has_killed_jvm() -> bool:
    """End the JVM that was started here at once: to stop, it would wait for its tasks. Nothing is written by them."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return _has_killed_starting_jvm()
    process.kill()
    process.wait()
    return True


def _has_killed_starting_jvm() -> bool:
    """End a JVM that PySpark has started and not connected to yet: nobody else knows its process."""
    children = [
        int(child)
        for path in Path("/proc/self/task").glob("*/children")  # of Linux; elsewhere there is nothing of that name
        for child in path.read_text().split()
    ]
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    return bool(children)


def java_command() -> str | None:
    """The java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    if home:
        command = os.path.join(home, "bin", "java")
        return command if os.access(command, os.X_OK) else None
    return shutil.which("java")


def _started(name: str, wishes: SparkWishes) -> "SparkSession":
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if java_command() is None:
        raise UnsupportedError(_NO_JAVA)
    if wishes.is_local:  # workers run here, and only this interpreter is known to have what they need
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = os.environ["PYSPARK_PYTHON"]  # by it executors run a source that Spark found
    conf = {**_QUIET, **(_LOCAL if wishes.is_local else {}), **wishes.conf}
    if wishes.packages:
        conf["spark.jars.packages"] = ",".join(wishes.packages)
    builder = SparkSession.builder.appName(name).master(wishes.master or "local[*]")
    with tempfile.TemporaryFile() as log:
        try:
            if not wishes.verbose:
                conf = {"spark.log.level": "ERROR", **conf}
                _start_quietly(name, wishes.master or "local[*]", conf, log)
            return _configured(builder, conf).getOrCreate()
        except PySparkRuntimeError as error:  # the JVM has left
            raise UnsupportedError(f"Spark did not start: {_last_words(log) or error}") from error
        except Exception as error:
            raise UnsupportedError(f"Spark did not start: {plain_error(error)}") from error


def _start_quietly(name: str, master: str, conf: Mapping[str, str], log: IO[bytes]) -> None:
    """Start a JVM that has a file for its standard error, and keeps it: it has much to say on its way up.

    The file has no name; if Spark does not start, it says why.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        settings = SparkConf().setAll(list(conf.items())).setMaster(master).setAppName(name)
        launch: Any = launch_gateway
        SparkContext(conf=settings, gateway=launch(settings, {"stderr": log}))


def _configured(builder: "SparkSession.Builder", conf: Mapping[str, str]) -> "SparkSession.Builder":
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder


def _last_words(log: IO[bytes]) -> str:
    """The line of a log that says what went wrong."""
    log.seek(0)
    lines = [line.decode("utf-8", "replace").strip() for line in log]
    lines = [line for line in lines if line and not line.startswith("at ")]
    telling = [line for line in lines if "xception" in line or "rror" in line]
    return (telling or lines or [""])[0][:500]
