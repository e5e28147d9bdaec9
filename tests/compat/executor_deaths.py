"""A job whose executors are killed while they write, each at a chosen moment; the driver lives.

    python -m tests.compat.executor_deaths ROOT FOLDER

writes into the topic `orders` of a root, on a cluster in one machine, and prints one line of JSON: what every death has
left behind. The sink is the real one. It is wrapped where a task calls it, so that the process that writes can end
itself, its neighbours and the executor above them with kill -9 at an exact point: none of them gets to clean up.

    staging     some of the rows are in staged files, others are still to come
    staged      every file of the task is on the disk, and nobody has been told
    told        the driver knows what the task has staged, and the commit is still to come
    lost        as `staging`, in every attempt: the job fails
"""

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from pyspark_tidelog import DefaultSource
from tidelog.spark.writer import BatchWriter, Staged, StreamWriter

DEADLINE_S = 60
TASKS = 3
ROWS_OF_TASK = 2500
ROWS = TASKS * ROWS_OF_TASK
ROW_BYTES = 5000  # rows of a task are more than it collects before it writes, and less than twice as much
LIGHT_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": LIGHT_JVM,
    "spark.executor.extraJavaOptions": LIGHT_JVM,
    "spark.executor.memory": "512m",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
    "spark.task.maxFailures": "2",
}


# -- deaths ------------------------------------------------------------------------------------------------------------


def parents() -> dict[int, int]:
    """The parent of every process."""
    found = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                found[int(name)] = int(file.read().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return found


def executor_of(process: int) -> int:
    """The executor that a Python worker works for."""
    above = parents()
    while process > 1:
        with open(f"/proc/{process}/cmdline", encoding="utf-8", errors="replace") as file:
            if "CoarseGrainedExecutorBackend" in file.read():
                return process
        process = above[process]
    raise LookupError("there is no executor above this process")


def kill_executor(executor: int) -> None:
    """Kill an executor and its Python workers, and this process at last if it is one of them."""
    os.kill(executor, signal.SIGSTOP)  # it must not see its workers die
    above, below, found = parents(), {executor}, 0
    while len(below) > found:
        found = len(below)
        below |= {child for child, parent in above.items() if parent in below}
    for process in sorted(below - {executor, os.getpid()}):
        os.kill(process, signal.SIGKILL)
    os.kill(executor, signal.SIGKILL)
    if os.getpid() in below:
        os.kill(os.getpid(), signal.SIGKILL)


def wait_for(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {DEADLINE_S} s")
        time.sleep(0.02)  # between two looks


class Deadly:
    """Stands before a writer. Other tasks wait until the first has met its end, so what it left can be told apart."""

    _write: Any
    moment: str
    root: str
    notes: str

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        assert context is not None
        attempt = context.attemptNumber()
        is_doomed = context.partitionId() == 0 and (attempt == 0 or self.moment == "lost")
        is_doomed &= not os.path.exists(f"{self.notes}/{attempt}")  # nor in the next batch of a stream
        if is_doomed and self.moment in ("staging", "lost"):
            iterator = self._deadly(iterator, attempt)
        if context.partitionId():
            wait_for(lambda: os.path.exists(f"{self.notes}/0"), "the first task dies")
        staged: Staged = super().write(iterator)  # type: ignore[misc]
        if is_doomed and self.moment == "staged":
            self._die(attempt)
        if is_doomed and self.moment == "told":
            note(f"{self.notes}/executor", executor_of(os.getpid()))
        return staged

    def _deadly(self, iterator: Iterator[pa.RecordBatch], attempt: int) -> Iterator[pa.RecordBatch]:
        """The same rows, until some are in files that were not there before."""
        before = set(staged_in(self.root))
        for batch in iterator:
            yield batch
            now = staged_in(self.root)
            if any(now[name] for name in now.keys() - before):
                self._die(attempt)

    def _die(self, attempt: int) -> None:
        executor = executor_of(os.getpid())
        os.kill(executor, signal.SIGSTOP)
        note(f"{self.notes}/{attempt}", staged_in(self.root))
        kill_executor(executor)


class DeadlyBatchWriter(Deadly, BatchWriter):
    """Writes a DataFrame."""


class DeadlyStreamWriter(Deadly, StreamWriter):
    """Writes a stream."""


def deadly_source(moment: str, root: str, notes: str) -> type[DefaultSource]:
    """A source of the name `deadly`, in whose writers somebody dies at a moment."""

    def doomed(writer: Any, made: Any) -> Any:
        made.moment, made.root, made.notes = moment, root, notes
        return made

    class DeadlySource(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "deadly"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            writer = super().writer(schema, overwrite)
            return doomed(writer, DeadlyBatchWriter(writer._write))

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            writer = super().streamWriter(schema, overwrite)
            return doomed(writer, DeadlyStreamWriter(writer._write))

    return DeadlySource


def note(path: str, content: object) -> None:
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(content, file)
    os.rename(f"{path}.new", path)


def staged_in(root: str) -> dict[str, int]:
    """The staged files of a root, and their sizes."""
    names = sorted(name for name in os.listdir(root) if name.endswith("-delete"))
    return {name: sum(file.stat().st_size for file in os.scandir(f"{root}/{name}")) for name in names}


# -- the job -----------------------------------------------------------------------------------------------------------


class Job:
    """One write after the other, each with its keys."""

    def __init__(self, spark: SparkSession, root: Path, folder: Path) -> None:
        self.spark = spark
        self.root = root
        self.folder = folder

    def rows(self, name: str) -> DataFrame:
        """Rows for three tasks."""
        numbers = self.spark.range(0, ROWS, 1, TASKS)
        return numbers.selectExpr(f"concat('{name}-', id) key", f"repeat(cast(id % 10 as string), {ROW_BYTES}) value")

    def save(self, name: str, form: str = "tidelog", **options: str) -> None:
        writer = self.rows(name).write.format(form).options(topic="orders", **options)
        writer.mode("append").save(str(self.root))

    def doom(self, name: str, moment: str) -> Path:
        """Let the next write to `deadly` meet its end; where it is told of."""
        notes = self.folder / name
        notes.mkdir()
        self.spark.dataSource.register(deadly_source(moment, str(self.root), str(notes)))
        return notes

    def batch(self, moment: str) -> Any:
        """A batch that comes to a good end though an executor dies."""
        notes = self.doom(moment, moment)
        if moment == "told":
            killer = threading.Thread(target=self._kill_when_told, args=(notes,), daemon=True)
            killer.start()
        self.save(moment, "deadly")
        return {"left": told(notes), "after": staged_in(str(self.root))}

    def _kill_when_told(self, notes: Path) -> None:
        """Kill the executor of the first task when the driver has the message of it."""
        status = self.spark.sparkContext.statusTracker()

        def is_told() -> bool:
            stages = [status.getStageInfo(stage) for stage in status.getActiveStageIds()]
            return (notes / "executor").exists() and any(stage and stage.numCompletedTasks for stage in stages)

        wait_for(is_told, "the driver hears of the first task")
        executor = json.loads((notes / "executor").read_text(encoding="utf-8"))
        found = staged_in(str(self.root))
        kill_executor(executor)
        note(str(notes / "0"), found)

    def stream(self, name: str, form: str) -> None:
        """A stream of two batches, or what is left of it."""
        source = self.folder / "source"
        if not source.exists():
            rows = self.rows("").selectExpr("key", "value", f"cast(substr(key, 2) div {ROWS_OF_TASK} as int) partition")
            writer = rows.write.format("tidelog").options(topic="source", partitions=str(TASKS))
            writer.mode("append").save(str(source))
        reader = self.spark.readStream.format("tidelog").options(subscribe="source", startingOffsets="earliest")
        frame = reader.option("maxOffsetsPerTrigger", str(ROWS - TASKS)).load(str(source))
        rows = frame.selectExpr(f"concat('{name}', cast(key as string)) key", "value")
        sink = rows.writeStream.format(form).options(topic="orders", checkpointLocation=str(self.folder / f"c-{name}"))
        sink.trigger(availableNow=True).start(str(self.root)).awaitTermination()

    def run(self) -> dict[str, Any]:
        found: dict[str, Any] = {moment: self.batch(moment) for moment in ("staging", "staged", "told")}
        notes = self.doom("stream", "staged")
        self.stream("stream", "deadly")
        found["stream"] = {"left": told(notes), "after": staged_in(str(self.root))}

        notes = self.doom("lost", "lost")
        try:
            self.stream("lost", "deadly")
        except StreamingQueryException:
            found["lost"] = {"left": told(notes), "after": staged_in(str(self.root))}
        shutil.copytree(self.root, self.folder / "copy")
        self.save("soon")
        found["soon"] = staged_in(str(self.root))
        self.save("late", stagingRetention="1ms")
        found["late"] = staged_in(str(self.root))
        self.stream("lost", "tidelog")
        found["end"] = staged_in(str(self.root))
        return found


def told(notes: Path) -> list[Any]:
    """What was staged when somebody died, death by death."""
    files = sorted(file for file in notes.iterdir() if file.name.isdecimal())
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def main(root: str, folder: str) -> None:
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("deaths")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    found = Job(spark, Path(root), Path(folder)).run()
    spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
