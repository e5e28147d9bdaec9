"""A stream from a topic of one root to a topic of another, as a program that a test can kill.

python -m tests.spark.streaming_job SOURCE SINK CHECKPOINT        copy all there is, two hundred records at a time
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.spark.session import new_session

DEADLINE_S = 300


def run(source: str, sink: str, checkpoint: str) -> None:
    """Copy all there is."""
    spark = new_session()
    reader = spark.readStream.format("tidelog").option("subscribe", "source").option("startingOffsets", "earliest")
    rows = reader.option("maxOffsetsPerTrigger", 200).load(source).select("key", "value", "timestamp")
    writer = rows.writeStream.format("tidelog").option("topic", "orders").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start(sink).awaitTermination()


class StreamingJob:
    """The program. All its processes are of one session, by which they are killed."""

    def __init__(self, source: Path, sink: Path, checkpoint: Path) -> None:
        command = [sys.executable, "-m", "tests.spark.streaming_job", str(source), str(sink), str(checkpoint)]
        self._output = checkpoint.with_suffix(".output")
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                command, cwd=Path(__file__).parents[2], stdout=output, stderr=output, start_new_session=True
            )

    def kill_when(self, moment: Callable[[], bool]) -> bool:
        """Kill every process of it at once when something is so; False if it has ended before."""
        deadline = time.monotonic() + DEADLINE_S
        while not moment():
            if self._process.poll() is not None:
                return False
            assert time.monotonic() < deadline, self._output.read_text()
            time.sleep(0.001)
        self.kill()
        return True

    def kill(self) -> None:
        """Kill all that is left of it."""
        for name in os.listdir("/proc"):
            try:
                if name.isdecimal() and os.getsid(int(name)) == self._process.pid:
                    os.kill(int(name), signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait()

    def finish(self) -> None:
        """Let it come to its end."""
        try:
            assert self._process.wait(DEADLINE_S) == 0, self._output.read_text()
        finally:
            self.kill()


if __name__ == "__main__":
    run(*sys.argv[1:])
