"""A Spark session on this machine, as tests want one: quiet, small, with the workers of this very environment."""

import os
import shutil
import sys
from collections.abc import Mapping

import pyspark
from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.pollingDelay": "20ms",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.log.level": "ERROR",
}


def missing() -> str | None:
    """What keeps Spark from working here; None if nothing does."""
    return None if shutil.which("java") else "Spark needs Java 17 or newer (java is not on the path)"


def new_session(master: str = "local[2,3]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session; with this master a task may fail twice before its job does."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_HOME", os.path.dirname(pyspark.__file__))  # executors are started by its scripts
    builder = SparkSession.builder.master(master).appName("tidelog tests")
    for name, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
