"""The engine: one partition's log on a disk, as Kafka keeps it."""
