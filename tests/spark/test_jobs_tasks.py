"""Errors on their way from a worker, or from the JVM, to one line."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tidelog.errors import CorruptRecordError, InvalidRequestError, StorageError, TidelogError
from tidelog.spark.jobs.tasks import Refusal, plain_errors, run_tasks
from tidelog.view.piece_walk import DamagedBatchError


def halve(number: int) -> int:
    if number % 2:
        raise CorruptRecordError(f"{number} is odd")
    return number // 2


def break_down(number: int) -> int:
    return 1 // number


def test_answers_come_in_the_order_of_the_tasks(spark: SparkSession) -> None:
    assert run_tasks(spark, "halves", halve, [4, 2, 10]) == [2, 1, 5]
    assert run_tasks(spark, "nothing", halve, []) == []


def test_an_error_of_ours_is_the_same_error_on_the_driver(spark: SparkSession) -> None:
    with pytest.raises(CorruptRecordError, match="^3 is odd$"):
        run_tasks(spark, "halves", halve, [4, 3])


def test_any_other_error_is_one_line_too(spark: SparkSession) -> None:
    with pytest.raises(StorageError, match="^Spark failed: ZeroDivisionError: integer division or modulo by zero$"):
        run_tasks(spark, "breaks", break_down, [0])


def test_an_error_of_a_room_travels_as_the_nearest_that_everybody_knows() -> None:
    error = Refusal.of(DamagedBatchError("a.log, position 7: torn", 7)).error()
    assert type(error) is CorruptRecordError
    assert str(error) == "a.log, position 7: torn"


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        (lambda spark, path: spark.read.parquet(path), InvalidRequestError, "Path does not exist"),
        (lambda spark, path: spark.sql("selec 1"), InvalidRequestError, "Syntax error at or near 'selec'"),
        (lambda spark, path: spark.read.format("nix").load(path), InvalidRequestError, "find the data source: nix"),
        (lambda spark, path: spark.read.format("tidelog").load(path), InvalidRequestError, "does not exist"),
    ],
)
def test_errors_of_spark_are_one_line(
    spark: SparkSession, tmp_path: Path, wrong: object, kind: type[TidelogError], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught, plain_errors():
        wrong(spark, str(tmp_path / "nowhere")).count()  # type: ignore[operator]
    assert "\n" not in str(caught.value)
    assert "SQLSTATE" not in str(caught.value)
