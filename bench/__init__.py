"""Benchmarks: `make bench` prints ratios measured side by side in one run and writes bench/results.json.

A ratio compares two things measured in the same run on the same core, by CPU time, as medians; absolute figures move
with the machine and its neighbours. The yardstick for memory speed is a copy of 256 MB from memory to memory.
"""
