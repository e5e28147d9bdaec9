"""Logs as files that other programs read, and such files as logs, without Spark.

formats.py     parquet, csv, jsonl, arrow: which there are, how each is written, what a file is
text.py        bytes as text and back, without loss
redaction.py   keys, values and headers replaced by what they cannot be guessed from
decoding.py    records of Kafka's internal topics in words
changes.py     both, on the way into a file
rows.py        rows one by one, where they are few
lines.py       lines for eyes and as JSON, where they are many
export.py      a scan into files
new_file.py    a file that has its name once it is complete
reading.py     files as RecordBatches with the columns of records
load.py        such rows appended to the logs of a root
load_root.py   the root meanwhile: locked, opened, left as a broker leaves it
load_roots.py  the same for all log directories of a broker
load_undo.py   an interrupted load taken back
assignment.py  the partitions of a topic by the metadata log of the cluster, and which are this node's
stray_topics.py  what a broker would set aside when it starts
"""
