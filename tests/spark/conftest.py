"""A Spark on this machine for every test of this folder, one in each test process.

Without Java the tests skip and say so; where TIDELOG_REQUIRE_SPARK=1 (`make test`) that would hide a broken set-up, and
they fail instead. TIDELOG_SPARK_MASTER is another master than two threads of this process: `make compat` runs these
tests with executors of their own as well.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """A session on two cores, or on the master that is asked for."""
    from tests.spark.session import missing, new_session

    reason = missing()
    if reason is not None:
        if os.environ.get("TIDELOG_REQUIRE_SPARK") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    session = new_session(os.environ.get("TIDELOG_SPARK_MASTER", "local[2,3]"))
    yield session
    session.stop()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On another master only what runs on it is of interest."""
    if "TIDELOG_SPARK_MASTER" in os.environ:
        others = [item for item in items if "spark" not in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]
