"""What `--version` prints: the number of the release, and up to 3.4 the commit it was built from."""

from tidelog.dump.releases import Release

__all__ = ["version_text"]

_COMMITS = {
    "2.3.0": "fc1aaa116b661c8a",
    "2.3.1": "18a913733fb71c01",
    "2.4.0": "77a89fcf8d7fa018",
    "2.4.1": "c57222ae8cd7866b",
    "2.5.0": "66563e712b0b9f84",
    "2.5.1": "0efa8fb0f4c73d92",
    "2.6.0": "62abe01bee039651",
    "2.6.3": "c24cbd3f5eeffa1e",
    "2.7.0": "448719dc99a19793",
    "2.7.2": "37a1cc36bf4d76f3",
    "2.8.0": "ebb1d6e21cc92130",
    "2.8.2": "3146c6ff4a24cc24",
    "3.0.0": "8cb0a5e9d3441962",
    "3.0.2": "25b1aea02e37da14",
    "3.1.0": "37edeed0777bacb3",
    "3.1.2": "f8c67dc3ae0a3265",
    "3.2.0": "38103ffaa962ef50",
    "3.2.3": "50029d3ed8ba576f",
    "3.3.0": "9d1f9f77642d7e95",
    "3.3.2": "b66af662e61082cb",
    "3.4.0": "2e1947d240607d53",
    "3.4.1": "8a516edc2755df89",
}


def version_text(release: Release) -> str:
    """One line."""
    if release.is_at_least(3, 5):
        return f"{release.full_name}\n"
    return f"{release.full_name} (Commit:{_COMMITS.get(release.full_name, 'unknown')})\n"
