"""The levels of features that Kafka 4.3 supports, and what the metadata may hold at a level of `metadata.version`.

Kafka: MetadataVersion, QuorumFeatures, and ImageWriterOptions.handleLoss for what a level cannot represent.
"""

from tidelog.errors import CorruptionError

__all__ = [
    "CONTROLLER_REGISTRATIONS",
    "CORDONED_DIRECTORIES",
    "DELEGATION_TOKENS",
    "DIRECTORIES",
    "ELIGIBLE_REPLICAS",
    "METADATA_VERSION",
    "SCRAM_CREDENTIALS",
    "ZK_BROKERS",
    "ensure_supported",
]

METADATA_VERSION = "metadata.version"
ELIGIBLE_REPLICAS = "eligible.leader.replicas.version"

# The levels of metadata.version since which the metadata can hold something.
ZK_BROKERS = 8  # 3.4-IV0
SCRAM_CREDENTIALS = 11  # 3.5-IV2
DELEGATION_TOKENS = 14  # 3.6-IV2
CONTROLLER_REGISTRATIONS = 15  # 3.7-IV0
DIRECTORIES = 17  # 3.7-IV2
CORDONED_DIRECTORIES = 30  # 4.3-IV0

_SUPPORTED = {
    METADATA_VERSION: (7, 30),
    "kraft.version": (0, 1),
    "group.version": (0, 1),
    "transaction.version": (0, 2),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    ELIGIBLE_REPLICAS: (0, 1),
}


def ensure_supported(name: str, level: int) -> None:
    """Raise CorruptionError for a level of a feature that Kafka 4.3 does not support."""
    lowest, highest = _SUPPORTED.get(name, (0, 0))
    if not lowest <= level <= highest:
        known = f"{lowest} to {highest}" if name in _SUPPORTED else "no such feature"
        raise CorruptionError(f"{name} {level}; Kafka 4.3 knows {known}")
