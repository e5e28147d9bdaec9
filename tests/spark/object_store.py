"""An S3 on this machine, for tests of remote roots: moto in a thread of this process, and pyarrow to fill it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import S3FileSystem

BUCKET = "lake"


@contextmanager
def object_store() -> Iterator[dict[str, Any]]:
    """What pyarrow must be told to reach the store, in which there is an empty bucket."""
    moto = pytest.importorskip("moto.server")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it prints every request
    server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = {
            "endpoint_override": f"{host}:{port}",
            "scheme": "http",
            "access_key": "any",
            "secret_key": "any",
            "region": "us-east-1",
        }
        S3FileSystem(**options, allow_bucket_creation=True).create_dir(BUCKET)
        yield options
    finally:
        server.stop()


def upload(options: dict[str, Any], root: Path, name: str) -> None:
    """Put every file of a root into the bucket, in the place of what is there under its name."""
    store = S3FileSystem(**options)
    for path in sorted(root.rglob("*")):
        if path.is_file():
            with store.open_output_stream(f"{BUCKET}/{name}/{path.relative_to(root)}") as stream:
                stream.write(path.read_bytes())
