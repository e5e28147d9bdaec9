"""What formats of Spark want to be told, unless the caller says otherwise."""

__all__ = ["OPTIONS_OF_FORMATS", "SETTINGS_OF_FORMATS", "format_of"]

# Of readers and writers. Spark's CSV has no heading, knows quotes behind a backslash and ends a row with a line;
# everybody else's, ours of `tidelog export` too, has one, doubles them, and goes on inside of quotes. Without multiLine
# such a row would be two that are wrong, with it a file is read by one task.
OPTIONS_OF_FORMATS = {"csv": {"header": "true", "escape": '"', "multiLine": "true"}}

# Of the session, beside a package.
SETTINGS_OF_FORMATS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {"spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"},
}
_BY_SUFFIX = {"csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json", "orc": "orc", "avro": "avro"}
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy")


def format_of(path: str) -> str:
    """The format of a file, by its name; parquet where that does not tell.

    >>> format_of("orders.jsonl.gz"), format_of("s3://lake/orders"), format_of("orders.CSV")
    ('json', 'parquet', 'csv')
    """
    name = path.rstrip("/").lower()
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    return _BY_SUFFIX.get(name.rpartition(".")[2], "parquet")
