"""docs/spark.md says what the options say."""

import re

from tests.spark_page import PAGE, page
from tidelog.spark.row_schema import ON_DEMAND, schema_of_columns


def test_the_tables_of_the_page_are_those_of_the_options() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "make docs"


def test_the_columns_on_demand_have_the_types_that_the_page_tells() -> None:
    told = re.findall(r"^\| `(\w+)` \| (\w+) \| [^|]+ \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    columns = schema_of_columns(", ".join(ON_DEMAND))
    assert told == [(field.name, field.dataType.simpleString()) for field in columns.fields]
