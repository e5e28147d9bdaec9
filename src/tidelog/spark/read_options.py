"""The options of a source, understood: all that is said with them but where to begin and to end."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql.types import StructType

from tidelog.errors import OffsetOutOfRangeError
from tidelog.spark.bounds import Reach
from tidelog.spark.option_table import check_names
from tidelog.spark.option_values import OptionValues
from tidelog.spark.places import Places
from tidelog.spark.planning import Splits
from tidelog.spark.row_schema import InvalidUtf8, default_schema, schema_of_columns
from tidelog.spark.topics import TopicChoice

__all__ = ["ReadOptions", "schema_for", "warn_of"]

_log = logging.getLogger("tidelog.spark")


class ReadOptions(NamedTuple):
    """What to read, and how. It can be pickled."""

    places: Places
    topics: TopicChoice
    reach: Reach
    splits: Splits
    fail_on_loss: bool
    verify: bool
    skip_damage: bool
    invalid_utf8: InvalidUtf8

    @classmethod
    def of(cls, values: OptionValues, *, is_stream: bool) -> "ReadOptions":
        """What options say. A stream keeps to what the replicas have: what it has read must not be taken back."""
        return cls(
            places=Places.of(values),
            topics=TopicChoice.of(values),
            reach=Reach.of(values, default="highWatermark" if is_stream else "logEnd"),
            splits=Splits.of(values),
            fail_on_loss=values.flag("failOnDataLoss", default=True),
            verify=values.flag("checksum", default=True),
            skip_damage=values.word("onCorruption", ("fail", "skip"), default="fail") == "skip",
            invalid_utf8=values.word("invalidUtf8", ("fail", "null", "replace"), default="fail"),
        )

    def report_loss(self, what: str) -> None:
        """Offsets that were asked for are not there: an error, or with failOnDataLoss=false a warning."""
        if self.fail_on_loss:
            raise OffsetOutOfRangeError(f"{what}; failOnDataLoss=false reads what is left")
        _log.warning("%s; what is left is read, because failOnDataLoss is false", what)


def schema_for(values: OptionValues) -> StructType:
    """The columns of a source for which Spark was given no schema."""
    columns = values.text("columns")
    if columns is not None:
        return schema_of_columns(columns)
    return default_schema(include_headers=values.flag("includeHeaders", default=False))


def warn_of(options: Mapping[str, str], where: str) -> None:
    """Refuse options that are not known, and warn once of those that have no effect."""
    ignored = check_names(options, where)
    if ignored.of_clients:
        _log.warning("these options have no effect on a directory: %s", ", ".join(sorted(ignored.of_clients)))
    if ignored.of_streams:
        _log.warning("these options have no effect on a batch read: %s", ", ".join(sorted(ignored.of_streams)))
