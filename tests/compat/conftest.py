"""Every test of this folder needs Apache Kafka's jars.

Without them the tests skip and say what is missing. Under `make compat` and in CI (TIDELOG_REQUIRE_KAFKA=1) that would
hide a broken set-up, so there they fail instead.
"""

import os

import pytest

from tests.compat import kafka_tools


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(kafka_tools.ROOT / "tests" / "compat"):
            item.add_marker(pytest.mark.kafka)


@pytest.fixture(autouse=True, scope="session")
def kafka() -> None:
    """The jars and a JVM, or the reason why not."""
    reason = kafka_tools.missing()
    if reason is None:
        return
    if os.environ.get("TIDELOG_REQUIRE_KAFKA") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
