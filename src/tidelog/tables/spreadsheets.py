"""Escape the cells of CSV that a spreadsheet would run as formulas.

A cell that begins with = + - or @, or with a tab or line end before one, is a formula to Excel, LibreOffice and others:
opening the file runs it. Kafka's records hold whatever clients sent. In the safe form such a cell gets an apostrophe in
front, which spreadsheets read as "this is text". A cell that begins with an apostrophe gets another one, so removing
the first apostrophe of every cell restores the texts.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["safe_cell", "safe_cells", "unsafe_cells"]

_MARK = "'"
_STARTS = "=+-@\t\r\n'\uff1d\uff0b\uff0d\uff20"  # the last four are = + - @ in full width
_PATTERN = r"^[=+\-@\t\r\n'\x{ff1d}\x{ff0b}\x{ff0d}\x{ff20}]"  # the same in RE2's spelling


def safe_cell(text: str) -> str:
    """The text of a cell that no spreadsheet takes for a formula.

    >>> safe_cell("=1+1"), safe_cell("'quoted'"), safe_cell("plain")
    ("'=1+1", "''quoted'", 'plain')
    """
    return f"{_MARK}{text}" if text[:1] and text[0] in _STARTS else text


def safe_cells(column: "pa.Array") -> "pa.Array":
    """The same for a column of text."""
    import pyarrow.compute as pc

    is_odd = pc.match_substring_regex(column, _PATTERN).fill_null(False)
    return pc.if_else(is_odd, pc.binary_join_element_wise(_MARK, column, ""), column) if is_odd.true_count else column


def unsafe_cells(column: "pa.Array") -> "pa.Array":
    """The texts that safe cells stand for."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(column, f"^{_MARK}", "", max_replacements=1)
