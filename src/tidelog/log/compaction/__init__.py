"""Compaction: of every key the last record stays.

    cleanable        what of a log is dirty and may be cleaned
    cleaner          one round over one log: `offset_map`, then `segment_groups`, `batch_fates`, `record_filter`
                     (`window_filter` where there is volume) and `cleaned_segment`
    log_cleaner      whose turn it is: `cleaner_manager`, `cleaner_states`, `cleaner_checkpoints`, `throttle`
    cleaner_config   memory, rate and backoff by Kafka's names

A round is a generator that a host moves on; `LogCleaner` does so on the schedule of a LogManager.
"""
