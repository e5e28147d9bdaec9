"""A path on this machine, for commands that write: an address of an object store is rejected before anything begins."""

from typing import Any

import click

from tidelog.errors import InvalidRequestError
from tidelog.view.addresses import is_address, local_path

__all__ = ["LOCAL_PATH"]


class _LocalPath(click.ParamType):  # type: ignore[type-arg]  # older releases of click know no argument
    """A path, or a file:// address of one. Otherwise `s3://bucket` would become a directory called `s3:`."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        path = str(value)
        if is_address(path):
            self.fail(
                f"{path} is not on a disk of this machine: write to a local directory and copy it there.", param, ctx
            )
        try:
            return local_path(path)
        except InvalidRequestError as error:
            self.fail(str(error), param, ctx)


LOCAL_PATH = _LocalPath()
