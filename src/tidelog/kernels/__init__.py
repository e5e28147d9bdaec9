"""The record formats at memory speed: loops over bytes, compiled by numba.

A kernel is a function over int64s (addresses, sizes, numbers) with one signature; it releases the GIL. Beside each
stands a thin function that takes Python's buffers. Three rules keep hostile bytes from doing harm:

    every length is compared with what is left ("remaining >= n") before it is used, never added to an address first
    every target is as large as the input allows, computed before the kernel runs, with slack for wide copies
    a kernel says which batch is broken and no more; `tidelog.records` reads that batch again and says why

    runtime.py, cache.py, catalogue.py     compiling, keeping what was compiled, warming up
    standalone.py, machine_code.py         kernels that are loaded without numba once they have been compiled
    memory.py, varint.py, buffers.py     the small change: loads and stores, variable-length integers, addresses
    crc32c.py, crc32.py, crc_tables.py   checksums; crc32c_blocks.py, crc32c_instructions.py: CRC-32C by the processor
    headers.py                    batch headers of a stretch of log
    bodies.py, decompress.py      plain bytes of bodies; lz4.py, snappy.py, xxh32.py below
    decode.py, messages.py        records to columns: version 2, and the legacy formats
    encode.py                     columns to batches
    validate.py                   one batch, for a broker
    murmur2.py                    the partition of a key
    indexing.py                   index entries of a stretch of log
    text.py, line_templates.py, log_lines.py     lines of text about batches and records
    key_table.py, compaction.py, compaction_runs.py     the last offset of each key; which records stay, written anew

This package imports numpy and numba, except for `cache`, `machine_code` and `line_templates`. Nothing imports it that
does not need volume.
"""
