"""The mark that ties a test to a row of the behaviour checklist (`tests/behaviours.tsv`).

>>> behaviour("REC-001").name
'behaviour'
"""

import pytest


def behaviour(*ids: str) -> pytest.MarkDecorator:
    """The decorated test shows these behaviours. `make docs` reads the ids from the source, so they are literals."""
    return pytest.mark.behaviour(*ids)
