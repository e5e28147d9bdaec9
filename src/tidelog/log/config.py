"""The config of a topic, as far as its log obeys it.

Every field is a topic config of Kafka 4, its name written with underscores: `segment_bytes` is `segment.bytes`.
Configs come from three places, in this order: what was set for the topic, what the broker sets for all topics under
names of its own (`log.segment.bytes`, `log.roll.hours`), and the defaults.

>>> config = LogConfig.from_properties({"cleanup.policy": "compact", "segment.ms": "3600000"})
>>> config.is_compacted, config.segment_ms, config.retention_ms
(True, 3600000, 604800000)

Older names are understood where they still mean something: `message.timestamp.difference.max.ms` (until 3.9) stands
for both limits that replaced it. `internal.segment.bytes` is how Kafka's own tests get segments below 1 MiB; here
`segment.bytes` may be that small, so both names are one field and the internal one wins.

Kafka: org.apache.kafka.storage.internals.log.LogConfig, ServerTopicConfigSynonyms, KafkaConfig.
"""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tidelog.errors import InvalidConfigError
from tidelog.log.config_values import (
    ANYTHING,
    Kind,
    Rule,
    Setting,
    at_least,
    between,
    levels_of,
    one_of,
    settings_of,
    some_of,
)
from tidelog.log.config_values import setting as _setting
from tidelog.records.compression import Codec

__all__ = ["LogConfig", "redacted_text"]

_DAY_MS = 24 * 60 * 60 * 1000
_FOREVER = 2**63 - 1
_AS_RETENTION = -2  # of local.retention.*: whatever retention.* says
_KEPT_CODEC, _NO_CODEC = "producer", "uncompressed"
_TIME_UNITS_MS = {"minutes": 60 * 1000, "hours": 60 * 60 * 1000}

_INTERNAL_SEGMENT_BYTES = "internal.segment.bytes"
_DIFFERENCE = "message.timestamp.difference.max.ms"
_REMOVED = ("message.downconversion.enable", "message.format.version")  # in 4.0: batches are of version 2


def _derived() -> Any:
    return field(init=False, repr=False, compare=False)


_THROTTLED_REPLICA = re.compile(r"([0-9]+:[0-9]+)?")
_THROTTLED = Rule(
    lambda items: items == ("*",) or all(_THROTTLED_REPLICA.fullmatch(item) for item in items),
    "* or a list of partition:broker",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """What one log must know about its topic. What Kafka refuses, a value or a pair, raises InvalidConfigError."""

    segment_bytes: int = _setting(1024**3, Kind.INT, at_least(14), "log.segment.bytes")
    segment_ms: int = _setting(7 * _DAY_MS, Kind.LONG, at_least(1), "log.roll.ms", "log.roll.hours")
    segment_jitter_ms: int = _setting(0, Kind.LONG, at_least(0), "log.roll.jitter.ms", "log.roll.jitter.hours")
    segment_index_bytes: int = _setting(10 * 1024**2, Kind.INT, at_least(4), "log.index.size.max.bytes")
    index_interval_bytes: int = _setting(4096, Kind.INT, at_least(0), "log.index.interval.bytes")
    retention_ms: int = _setting(
        7 * _DAY_MS, Kind.LONG, at_least(-1), "log.retention.ms", "log.retention.minutes", "log.retention.hours"
    )
    retention_bytes: int = _setting(-1, Kind.LONG, ANYTHING, "log.retention.bytes")
    cleanup_policy: tuple[str, ...] = _setting(
        ("delete",), Kind.LIST, some_of("compact", "delete"), "log.cleanup.policy"
    )
    max_message_bytes: int = _setting(1024**2 + 12, Kind.INT, at_least(0), "message.max.bytes")
    compression_type: str = _setting(
        _KEPT_CODEC, Kind.STRING, one_of(_NO_CODEC, "zstd", "lz4", "snappy", "gzip", _KEPT_CODEC), "compression.type"
    )
    compression_gzip_level: int = _setting(-1, Kind.INT, levels_of(Codec.GZIP), "compression.gzip.level")
    compression_lz4_level: int = _setting(9, Kind.INT, levels_of(Codec.LZ4), "compression.lz4.level")
    compression_zstd_level: int = _setting(3, Kind.INT, levels_of(Codec.ZSTD), "compression.zstd.level")
    message_timestamp_type: str = _setting(
        "CreateTime", Kind.STRING, one_of("CreateTime", "LogAppendTime"), "log.message.timestamp.type"
    )
    message_timestamp_before_max_ms: int = _setting(
        _FOREVER, Kind.LONG, at_least(0), "log.message.timestamp.before.max.ms"
    )
    message_timestamp_after_max_ms: int = _setting(
        60 * 60 * 1000, Kind.LONG, at_least(0), "log.message.timestamp.after.max.ms"
    )
    flush_messages: int = _setting(_FOREVER, Kind.LONG, at_least(1), "log.flush.interval.messages")
    flush_ms: int = _setting(
        _FOREVER, Kind.LONG, at_least(0), "log.flush.interval.ms", "log.flush.scheduler.interval.ms"
    )
    file_delete_delay_ms: int = _setting(60_000, Kind.LONG, at_least(0), "log.segment.delete.delay.ms")
    delete_retention_ms: int = _setting(_DAY_MS, Kind.LONG, at_least(0), "log.cleaner.delete.retention.ms")
    min_compaction_lag_ms: int = _setting(0, Kind.LONG, at_least(0), "log.cleaner.min.compaction.lag.ms")
    max_compaction_lag_ms: int = _setting(_FOREVER, Kind.LONG, at_least(1), "log.cleaner.max.compaction.lag.ms")
    min_cleanable_dirty_ratio: float = _setting(0.5, Kind.DOUBLE, between(0, 1), "log.cleaner.min.cleanable.ratio")
    preallocate: bool = _setting(False, Kind.BOOLEAN, ANYTHING, "log.preallocate")
    min_insync_replicas: int = _setting(1, Kind.INT, at_least(1), "min.insync.replicas")
    unclean_leader_election_enable: bool = _setting(False, Kind.BOOLEAN, ANYTHING, "unclean.leader.election.enable")
    leader_replication_throttled_replicas: tuple[str, ...] = _setting((), Kind.LIST, _THROTTLED)
    follower_replication_throttled_replicas: tuple[str, ...] = _setting((), Kind.LIST, _THROTTLED)
    remote_storage_enable: bool = _setting(False, Kind.BOOLEAN)
    remote_log_copy_disable: bool = _setting(False, Kind.BOOLEAN)
    remote_log_delete_on_disable: bool = _setting(False, Kind.BOOLEAN)
    local_retention_ms: int = _setting(_AS_RETENTION, Kind.LONG, at_least(-2), "log.local.retention.ms")
    local_retention_bytes: int = _setting(_AS_RETENTION, Kind.LONG, at_least(-2), "log.local.retention.bytes")

    # Worked out once, because every append asks for them.
    is_compacted: bool = _derived()
    deletes: bool = _derived()
    uses_append_time: bool = _derived()
    target_codec: Codec | None = _derived()  # None keeps the producer's
    # The age at which a segment is rolled: a compacted topic must not keep records from the cleaner for longer.
    max_segment_ms: int = _derived()

    def __post_init__(self) -> None:
        for name, setting in _SETTINGS.items():
            setting.check(name, getattr(self, _field_name(name)))
        object.__setattr__(self, "is_compacted", "compact" in self.cleanup_policy)
        object.__setattr__(self, "deletes", "delete" in self.cleanup_policy)
        object.__setattr__(self, "uses_append_time", self.message_timestamp_type == "LogAppendTime")
        object.__setattr__(self, "target_codec", _codec_of(self.compression_type))
        age_ms = min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms
        object.__setattr__(self, "max_segment_ms", age_ms)
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidConfigError(
                f"min.compaction.lag.ms is {self.min_compaction_lag_ms}, "
                f"above max.compaction.lag.ms, {self.max_compaction_lag_ms}"
            )
        if self.remote_storage_enable:
            self._check_remote_storage()

    def _check_remote_storage(self) -> None:
        if self.is_compacted:
            raise InvalidConfigError("remote.storage.enable is true, which a compacted topic cannot have")
        for unit, local, whole in (
            ("ms", self.local_retention_ms, self.retention_ms),
            ("bytes", self.local_retention_bytes, self.retention_bytes),
        ):
            if local == _AS_RETENTION:
                continue
            if whole >= 0 and not 0 <= local <= whole:
                raise InvalidConfigError(f"local.retention.{unit} is {local}, above retention.{unit}, {whole}")
            if self.remote_log_copy_disable and local != whole:
                raise InvalidConfigError(
                    f"local.retention.{unit} is {local} and retention.{unit} {whole}: "
                    "they must be equal where remote.log.copy.disable is true"
                )

    # -- from and to Kafka's names -------------------------------------------------------------------------------

    @classmethod
    def from_properties(cls, properties: Mapping[str, object], base: "LogConfig | None" = None) -> "LogConfig":
        """The config of a topic: `properties` over `base` (the broker's) or over the defaults. None is not set."""
        given = {name: value for name, value in properties.items() if value is not None}
        values = {} if base is None else {name: getattr(base, _field_name(name)) for name in _SETTINGS}
        internal = given.pop(_INTERNAL_SEGMENT_BYTES, None)
        difference = given.pop(_DIFFERENCE, None)
        for name, value in given.items():
            values[name] = _setting_named(name).parse(name, value)
        if internal is not None:
            values["segment.bytes"] = _SETTINGS["segment.bytes"].parse(_INTERNAL_SEGMENT_BYTES, internal)
        _spread_difference(values, given, difference)
        return cls(**{_field_name(name): value for name, value in values.items()})

    @classmethod
    def from_broker_properties(cls, properties: Mapping[str, object]) -> "LogConfig":
        """What a broker's `server.properties` say about all topics. Names of anything else are passed over."""
        given = {name: value for name, value in properties.items() if value is not None}
        values: dict[str, object] = {}
        for name, setting in _SETTINGS.items():
            for broker_name in setting.broker_names:
                if broker_name in given:
                    values[name] = _broker_value(setting, name, broker_name, given[broker_name])
                    break
        _spread_difference(values, values, given.get(f"log.{_DIFFERENCE}"))
        return cls(**{_field_name(name): value for name, value in values.items()})  # type: ignore[arg-type]

    def to_properties(self) -> dict[str, str]:
        """Every config by Kafka's name, as Kafka's tools would show it."""
        return {name: setting.to_text(getattr(self, _field_name(name))) for name, setting in _SETTINGS.items()}

    # -- what follows from the values ----------------------------------------------------------------------------

    @property
    def effective_local_retention_ms(self) -> int:
        return self.retention_ms if self.local_retention_ms == _AS_RETENTION else self.local_retention_ms

    @property
    def effective_local_retention_bytes(self) -> int:
        return self.retention_bytes if self.local_retention_bytes == _AS_RETENTION else self.local_retention_bytes

    def segment_jitter(self, rng: random.Random) -> int:
        """By how much one segment rolls earlier, so that the segments of many partitions do not roll together."""
        if self.segment_jitter_ms == 0:
            return 0
        drawn = rng.randrange(-(2**31), 2**31)
        return (0 if drawn == -(2**31) else abs(drawn)) % min(self.segment_jitter_ms, self.segment_ms)

    def codec_for(self, source: Codec) -> Codec:
        """The codec in which a batch that came in `source` is stored."""
        return source if self.target_codec is None else self.target_codec

    def level_for(self, codec: Codec) -> int | None:
        """The level to compress with; None is the codec's default, as it is wherever the producer chose the codec."""
        if self.target_codec is None:
            return None
        return {
            Codec.GZIP: self.compression_gzip_level,
            Codec.LZ4: self.compression_lz4_level,
            Codec.ZSTD: self.compression_zstd_level,
        }.get(codec)

    def check_remote_storage_change(self, before: "LogConfig | None", *, is_supported: bool) -> None:
        """Raise InvalidConfigError where a broker could not let this config follow `before`.

        Remote storage needs a broker that has it, and cannot be left while records may be there.
        """
        if self.remote_storage_enable and not is_supported:
            raise InvalidConfigError("remote.storage.enable is true, but remote storage is not available here")
        was_enabled = before is not None and before.remote_storage_enable
        if was_enabled and not self.remote_storage_enable and not self.remote_log_delete_on_disable:
            raise InvalidConfigError(
                "remote.storage.enable turns false, which loses what is there: set remote.log.copy.disable to keep it "
                "for reading, or remote.log.delete.on.disable to agree"
            )


def redacted_text(properties: Mapping[str, object]) -> str:
    """The overrides of a topic for a log line. A value whose name is unknown may be a secret and is not shown.

    >>> redacted_text({"retention.bytes": "100", "compression.type": "lz4", "ssl.key.password": "hush"})
    '{compression.type="lz4", retention.bytes=100, ssl.key.password=(redacted)}'
    """

    def shown(name: str, value: object) -> str:
        setting = _SETTINGS.get(name)
        if setting is None and name not in (_INTERNAL_SEGMENT_BYTES, _DIFFERENCE):
            return "(redacted)"
        return f'"{value}"' if setting is not None and setting.kind is Kind.STRING else str(value)

    return "{" + ", ".join(f"{name}={shown(name, properties[name])}" for name in sorted(properties)) + "}"


def _field_name(name: str) -> str:
    return name.replace(".", "_")


_FIELDS = {item.name.replace("_", "."): item for item in fields(LogConfig) if item.init}
_SETTINGS: dict[str, Setting] = {name.replace("_", "."): known for name, known in settings_of(LogConfig).items()}


def _codec_of(compression_type: str) -> Codec | None:
    if compression_type == _KEPT_CODEC:
        return None
    return Codec.NONE if compression_type == _NO_CODEC else Codec.from_name(compression_type)


def _setting_named(name: str) -> Setting:
    if name in _SETTINGS:
        return _SETTINGS[name]
    if name in _REMOVED:
        raise InvalidConfigError(f"{name} is gone since Kafka 4.0, where every batch is written in version 2")
    from difflib import get_close_matches  # only for this sentence

    nearest = get_close_matches(name, _SETTINGS, n=1)
    raise InvalidConfigError(f"{name} is no topic config" + (f"; the nearest is {nearest[0]}" if nearest else ""))


def _spread_difference(values: dict[str, Any], given: Mapping[str, object], difference: object) -> None:
    """The limit of Kafka until 3.9 counts in both directions, unless a direction has a limit of its own."""
    if difference is None:
        return
    for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
        limit = _SETTINGS[name].parse(_DIFFERENCE, difference)
        own = values.get(name, _FOREVER)
        if own == _FOREVER or (name not in given and own == _FIELDS[name].default):
            values[name] = limit


def _broker_value(setting: Setting, name: str, broker_name: str, value: object) -> object:
    """A broker gives some times in minutes or hours, and knows more than one way to say that nothing expires."""
    unit_ms = _TIME_UNITS_MS.get(broker_name.rpartition(".")[2])
    if unit_ms is not None:
        setting = setting._replace(kind=Kind.INT)
    is_retention = name == "retention.ms"
    if is_retention:
        setting = setting._replace(rule=Rule(lambda value: value != 0, "-1 for unlimited, or 1 or more"))
    parsed = setting.parse(broker_name, value)
    if is_retention and parsed < 0:
        return -1
    return parsed if unit_ms is None else parsed * unit_ms
