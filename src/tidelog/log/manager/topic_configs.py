"""The configs of all topics of a broker: its defaults, and what was set for single topics over them.

Topics for which nothing was set share one object. A change is looked at as a whole before any of it holds.

Kafka: ConfigRepository and LogManager.fetchLogConfig.
"""

from collections.abc import Mapping

from tidelog.log.config import LogConfig
from tidelog.log.manager.checks import checked_defaults, checked_overrides, checked_properties

__all__ = ["TopicConfigs"]

Properties = Mapping[str, object]


class TopicConfigs:
    """The config of each topic."""

    def __init__(
        self, defaults: LogConfig | None = None, overrides: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self._defaults = LogConfig() if defaults is None else checked_defaults(defaults)
        self._overrides = {} if overrides is None else checked_overrides(overrides)
        self._configs = self._over(self._defaults)

    @property
    def defaults(self) -> LogConfig:
        return self._defaults

    def of(self, topic: str) -> LogConfig:
        """The config of a topic, known or not."""
        return self._configs.get(topic, self._defaults)

    def set_topic(self, topic: str, properties: Properties) -> None:
        """Replace what was set for a topic. Raises InvalidConfigError, having changed nothing."""
        properties = checked_properties(topic, properties)
        if not properties:
            self._overrides.pop(topic, None)
            self._configs.pop(topic, None)
        else:
            self._configs[topic] = LogConfig.from_properties(properties, base=self._defaults)
            self._overrides[topic] = properties

    def set_defaults(self, defaults: LogConfig) -> None:
        """Replace the defaults under what was set for topics. Raises InvalidConfigError, having changed nothing."""
        self._configs = self._over(checked_defaults(defaults))
        self._defaults = defaults

    def _over(self, defaults: LogConfig) -> dict[str, LogConfig]:
        return {
            topic: LogConfig.from_properties(given, base=defaults) for topic, given in self._overrides.items() if given
        }
