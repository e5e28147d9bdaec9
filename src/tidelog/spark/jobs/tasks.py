"""Running tasks on Spark: each in a Python worker, watched from here, with errors that stay what they were.

A task that raises one of our errors hands it back as its answer. Spark would try the task again, and wrap the sentence
into a page of Java.
"""

import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from tidelog import errors
from tidelog.errors import InvalidRequestError, StorageError, TidelogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "Guarded",
    "OnTasks",
    "Refusal",
    "answers",
    "plain_error",
    "plain_errors",
    "run_tasks",
    "watched",
    "watching",
]

OnTasks = Callable[[int, int], None]  # tasks that are done, and all
Given = TypeVar("Given")
Answer = TypeVar("Answer")

_LOOK_EVERY_S = 0.2
_OUR_ERROR = re.compile(r"tidelog\.(?:errors|view\.piece_walk)\.(\w+): (.+)")
_PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
_ERROR_CLASS = re.compile(r"^\[[A-Z_.0-9]+\]\s*")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+.*$", re.DOTALL)
_WRONGLY_ASKED = re.compile(r"\[[A-Z_.0-9]+\] (.+?) SQLSTATE: 42")  # the class of states that mean: not so
_JAVA_CAUSE = re.compile(r"^(?:Caused by: |: )?(?:[\w$]+\.)+([\w$]*(?:Exception|Error)): (.+)$", re.MULTILINE)


class Refusal(NamedTuple):
    """An error of ours on its way from a worker to the driver."""

    kind: str
    words: str

    @classmethod
    def of(cls, error: TidelogError) -> "Refusal":
        """Of a subclass that lives elsewhere, the nearest one that everybody knows."""
        kind = next(each.__name__ for each in type(error).__mro__ if each.__name__ in errors.__all__)
        return cls(kind, str(error))

    def error(self) -> TidelogError:
        """The error itself."""
        return _error_named(self.kind, self.words)


class Guarded(Generic[Given, Answer]):
    """A function whose errors of ours are answers."""

    def __init__(self, work: Callable[[Given], Answer]) -> None:
        self._work = work

    def __call__(self, given: Given) -> "Answer | Refusal":
        from tidelog.spark.worker import prepare_worker

        prepare_worker()
        try:
            return self._work(given)
        except TidelogError as error:
            return Refusal.of(error)


def run_tasks(
    spark: "SparkSession",
    name: str,
    work: Callable[[Given], Answer],
    tasks: Sequence[Given],
    on_tasks: OnTasks | None = None,
) -> list[Answer]:
    """Have every task done by a worker; the answers in the order of the tasks. The first error of ours is raised."""
    if not tasks:
        return []
    found: Any = spark.sparkContext.parallelize(tasks, len(tasks)).map(Guarded(work))
    with watched(spark, name, on_tasks):
        return answers(found.collect())


def answers(found: "Sequence[Answer | Refusal]") -> list[Answer]:
    """What tasks gave back; if one of them refused, its error is raised."""
    sound = []
    for one in found:
        if isinstance(one, Refusal):
            raise one.error()
        sound.append(one)
    return sound


@contextmanager
def watched(spark: "SparkSession", name: str, on_tasks: OnTasks | None) -> Iterator[None]:
    """Inside, jobs that Spark runs for this thread are counted, and what goes wrong is one line."""
    context = spark.sparkContext
    group = f"tidelog-{uuid.uuid4().hex}"
    context.setJobGroup(group, name, interruptOnCancel=True)
    try:
        with plain_errors(), watching(spark, group, on_tasks):
            yield
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        raise
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]


@contextmanager
def watching(spark: "SparkSession", group: str, on_tasks: OnTasks | None) -> Iterator[None]:
    """Inside, an observer hears every now and then how many tasks of a group of jobs are done."""
    if on_tasks is None:
        yield
        return
    tracker = spark.sparkContext.statusTracker()
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(_LOOK_EVERY_S):
            on_tasks(*_counted(tracker, group))

    watcher = threading.Thread(target=watch, name="tidelog-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
        on_tasks(*_counted(tracker, group))


def _counted(tracker: Any, group: str) -> tuple[int, int]:
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in () if info is None else info.stageIds:
            found = tracker.getStageInfo(stage)
            if found is not None:
                done += found.numCompletedTasks
                total += found.numTasks
    return done, total


# -- what went wrong, in one line ------------------------------------------------------------------------------------


@contextmanager
def plain_errors() -> Iterator[None]:
    """Inside, an error of Spark becomes one of ours, with the sentence that matters."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise plain_error(error) from error


def plain_error(error: Exception) -> TidelogError:
    """The error of ours that an error of Spark carries, or comes to."""
    from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException

    text = str(error)
    ours = _OUR_ERROR.findall(text)
    if ours:
        kind, words = ours[-1]
        return _error_named(kind, _SQLSTATE.sub("", words).strip())
    if isinstance(error, AnalysisException | ParseException | IllegalArgumentException):
        return InvalidRequestError(_first_sentence(text))
    asked = _WRONGLY_ASKED.search(text)
    if asked is not None:
        return InvalidRequestError(asked[1].strip())
    causes = _PYTHON_ERROR.findall(text) if "Traceback" in text else _JAVA_CAUSE.findall(text)
    if causes:
        kind, words = causes[-1]
        return StorageError(f"Spark failed: {kind}: {_SQLSTATE.sub('', words).strip()}")
    return StorageError(f"Spark failed: {_first_sentence(text)}")


def _first_sentence(text: str) -> str:
    """An error of Spark without its class, its state, its plan and its stack."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    return _SQLSTATE.sub("", _ERROR_CLASS.sub("", line)).strip().rstrip(";")


def _error_named(kind: str, words: str) -> TidelogError:
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, TidelogError):
        try:
            return found(words)
        except TypeError:  # one that carries more than a sentence
            pass
    return StorageError(words)
