"""The text of kafka-dump-log, equal to the byte, for releases 0.8.2 to 4.3.

    run(["--files", "00000000000000000000.log"], release="4.3", stdout=sys.stdout, stderr=sys.stderr)

`releases` tells the tools of the releases apart; `options` and `usage` are the command line; `log_text`, `index_text`,
`snapshot_text` and `txn_index_text` each write one kind of file; `decoders` put records of internal topics into words.
"""

from tidelog.dump.tool import run

__all__ = ["run"]
