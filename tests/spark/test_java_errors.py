"""What Java has thrown below Spark, as one sentence: a package that does not fit this Spark fails so."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidelog.errors import StorageError
from tidelog.spark.jobs.tasks import plain_errors


def test_an_error_of_java_is_told_with_its_words(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    words = r"^Spark failed: ClassNotFoundException: no\.such\.Catalog$"
    with pytest.raises(StorageError, match=words), plain_errors():
        jvm.java.lang.Class.forName("no.such.Catalog")
