"""`docs/cli.md` says what the commands say."""

from tests import cli_page


def test_the_page_is_what_the_commands_print() -> None:
    assert cli_page.PAGE.read_text(encoding="utf-8") == cli_page.page(), "run `make docs`"
