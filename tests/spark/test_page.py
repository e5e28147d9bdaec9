"""docs/spark.md says what the options say."""

from tests.spark_page import PAGE, page


def test_the_tables_of_the_page_are_those_of_the_options() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "make docs"
