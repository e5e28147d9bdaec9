"""Decoders: what is printed of the key and the value of a record, by decoder option and release.

    decoder_for("offsets-decoder", release).decode(record)     key text and payload text; None is not printed
    class_decoder(key_class, value_class, release)             for --key-decoder-class and --value-decoder-class

What the real tool tells in its output and passes over is a text here too; what ends it is raised as a JavaError.
"""

from typing import Protocol

from tidelog.dump.decoders.coordinator_records import CoordinatorDecoder
from tidelog.dump.decoders.decoder_classes import ClassDecoder, class_decoder
from tidelog.dump.decoders.group_text import GroupTextDecoder
from tidelog.dump.decoders.metadata_log import MetadataLogDecoder
from tidelog.dump.decoders.quorum_records import quorum_record_json
from tidelog.dump.decoders.remote_log import RemoteLogDecoder
from tidelog.dump.decoders.transaction_text import TransactionTextDecoder
from tidelog.dump.plain_text import PlainText
from tidelog.dump.releases import Release
from tidelog.errors import UnsupportedError
from tidelog.records.record import Record

__all__ = ["ClassDecoder", "Decoder", "class_decoder", "decoder_for", "quorum_record_json"]


class Decoder(Protocol):
    """Decodes records of batches that are not control batches."""

    def decode(self, record: Record) -> tuple[str | None, str | None]:
        """The text of the key and of the payload; None is not printed."""


def decoder_for(option: str, release: Release) -> Decoder:
    """The decoder that an option of the tool chooses; "string" is the one without any."""
    match option:
        case "string":
            return PlainText()
        case "offsets-decoder":
            return CoordinatorDecoder("group", release) if release.is_at_least(3, 8) else GroupTextDecoder(release)
        case "transaction-log-decoder":
            if release.is_at_least(4, 1):
                return CoordinatorDecoder("transaction", release)
            return TransactionTextDecoder(release)
        case "cluster-metadata-decoder":
            return MetadataLogDecoder(release)
        case "remote-log-metadata-decoder":
            return RemoteLogDecoder(release)
        case "share-group-state-decoder":
            return CoordinatorDecoder("share", release)
    raise UnsupportedError(f"no decoder is called {option!r}; the options of the tool end with '-decoder'")
