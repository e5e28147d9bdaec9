"""Every kernel there is, for those who want them compiled ahead."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from tidelog.kernels import runtime

__all__ = ["MODULES", "kernels"]

MODULES = (
    "crc32c",
    "headers",
    "bodies",
    "decode",
    "lz4",
    "snappy",
    "messages",
    "validate",
    "record_walk",
    "encode",
    "deal",
    "murmur2",
    "indexing",
    "index_check",
    "log_lines",
    "key_table",
    "compaction",
)


def kernels() -> "Sequence[runtime.Kernel[..., Any]]":
    """All kernels, those of the most used modules first. Importing their modules registers them."""
    for module in MODULES:
        import_module(f"tidelog.kernels.{module}")
    return tuple(runtime._registry)
