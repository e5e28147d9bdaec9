"""Which release a name means."""

import pytest

from tidelog.dump.releases import release
from tidelog.errors import UnsupportedError


@pytest.mark.parametrize(
    ("name", "full_name"),
    [
        ("4.3", "4.3.0"),
        ("3.9.0", "3.9.0"),
        ("2", "2.8.2"),
        ("0.8.2", "0.8.2.2"),
        ("0.10", "0.10.2.2"),
        ("2.0", "2.0.1"),
    ],
)
def test_a_name_without_its_last_numbers_means_the_newest(name: str, full_name: str) -> None:
    assert release(name).full_name == full_name


def test_patches_differ_where_the_tool_was_changed_in_a_patch() -> None:
    assert [release(name).batch_is_control for name in ("2.0.0", "2.0.1", "2.0")] == [False, True, True]
    assert [release(name).snapshot_line for name in ("1.0.0", "1.0.1", "1.0.2")] == ["queue", "queue", "batch"]


@pytest.mark.parametrize("name", ["4.4", "3.10", "0.8.1", "0.7", "newest", "", "4.3.0.1", "2.0.x", "-1"])
def test_an_unknown_release_is_refused_with_the_known_range(name: str) -> None:
    with pytest.raises(UnsupportedError, match=r"from 0\.8\.2 to 4\.3"):
        release(name)
