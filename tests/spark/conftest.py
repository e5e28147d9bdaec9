"""A Spark on this machine for every test of this folder, one in each test process.

Without Java the tests skip and say so; where TIDELOG_REQUIRE_SPARK=1 (`make test`) that would hide a broken set-up, and
they fail instead.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """A session on two cores."""
    from tests.spark.session import missing, new_session

    reason = missing()
    if reason is not None:
        if os.environ.get("TIDELOG_REQUIRE_SPARK") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    session = new_session()
    yield session
    session.stop()
