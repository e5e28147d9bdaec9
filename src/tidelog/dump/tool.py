"""The tool itself: a command line in, text, reports and an exit code out.

    0   the files were dumped, or left alone with a word about it
    1   the usage text was asked for or needed, or an exception ended the tool

As the real tool does, it prints what it can before it ends with an exception. Unlike it, it never writes to a file.
"""

import os
from collections.abc import Sequence

from tidelog.dump.directories import files_of
from tidelog.dump.index_text import IndexOptions, dump_index, dump_time_index
from tidelog.dump.java_errors import JavaError
from tidelog.dump.java_text import JavaFile, java_split
from tidelog.dump.log_text import Decoder, LogOptions, dump_log
from tidelog.dump.message_text import dump_messages
from tidelog.dump.options import DECODER_OPTIONS, NEW_DECODER, OLD_DECODER, CommandLine, parse
from tidelog.dump.output import Output, Stream
from tidelog.dump.plain_text import PlainText
from tidelog.dump.releases import NEWEST, Release
from tidelog.dump.releases import release as release_of
from tidelog.dump.reports import Reports
from tidelog.dump.snapshot_text import dump_snapshot
from tidelog.dump.txn_index_text import dump_txn_index
from tidelog.dump.usage import purpose, usage_text
from tidelog.dump.versions import version_text

__all__ = ["run"]


def run(args: Sequence[str], *, release: str = NEWEST, stdout: Stream, stderr: Stream, cwd: str = ".") -> int:
    """Run the tool of a release; give back its exit code."""
    known = release_of(release)
    out, err = Output(stdout), Output(stderr)
    try:
        return _Run(args, known, out, err, os.path.abspath(cwd)).run()
    except JavaError as error:
        out.flush()
        for line in error.lines():
            err.write(f"{line}\n")
        return 1
    finally:
        out.flush()
        err.flush()


class _Run:
    """One run over the files of a command line."""

    def __init__(self, args: Sequence[str], release: Release, out: Output, err: Output, directory: str) -> None:
        self._args = args
        self._release = release
        self._out = out
        self._err = err
        self._directory = directory
        self._reports = Reports(release)
        self._decoder: Decoder | None = None
        self._notices: tuple[str, ...] = ()

    def run(self) -> int:
        release = self._release
        if not self._args and not release.is_at_least(1, 0):
            return self._explain(purpose(release))
        line = parse(self._args, release)
        if not self._args or line.has("help"):
            return self._explain(purpose(release))
        if line.has("version"):
            self._out.write(version_text(release))
            return 0
        if not line.has("files"):
            return self._explain('Missing required argument "[files]"')
        self._line = line
        names = java_split(line.value("files"), ",")
        if not release.is_at_least(2, 3):  # these look at all values before the first file
            line.number("max-message-size")
            self._message_decoder()
        for name in names:
            for file in files_of(JavaFile.at(name, self._directory)):
                self._dump(file)
        self._out.flush()
        self._reports.write(self._err)
        return 0

    def _explain(self, message: str) -> int:
        self._err.write(f"{message}\n{usage_text(self._release)}")
        return 1

    def _dump(self, file: JavaFile) -> None:
        release = self._release
        kind = self._kind_of(file)
        if kind is None and not release.names_unknown_files:
            return
        self._out.write(f"Dumping {file.path}\n")
        if file.suffix is None and release.needs_a_suffix:
            length = len(file.name.encode("utf-16-le", "surrogatepass")) // 2
            raise JavaError("java.lang.StringIndexOutOfBoundsException", f"begin -1, end {length}, length {length}")
        if kind is None:
            self._out.flush()
            self._err.write(f"Ignoring unknown file {file.path}\n")
        elif kind in (".log", ".checkpoint"):
            self._dump_log(file)
        elif kind == ".index":
            dump_index(file, self._index_options(), release, self._reports, self._out)
        elif kind == ".timeindex":
            dump_time_index(file, self._time_index_options(), release, self._reports, self._out)
        elif kind == ".snapshot":
            dump_snapshot(file, release, self._out, self._err)
        else:
            dump_txn_index(file, release, self._out)

    def _kind_of(self, file: JavaFile) -> str | None:
        release = self._release
        kinds = [".log", ".index"]
        if release.knows_time_indexes:
            kinds.append(".timeindex")
        if release.knows_snapshots:
            kinds += [".snapshot", ".txnindex"]
        if release.knows_checkpoints:
            kinds.append(".checkpoint")
        return file.suffix if file.suffix in kinds else None

    # -- what the command line says about a kind of file -----------------------------------------------------------

    def _dump_log(self, file: JavaFile) -> None:
        line, release = self._line, self._release
        data = self._prints_data()
        deep = line.has("deep-iteration") or data and release.data_is_deep
        if release.log_lines == "messages":
            options = LogOptions(deep, data)
            dump_messages(
                file,
                options,
                self._message_decoder(),
                line.number("max-message-size"),
                release,
                self._reports,
                self._out,
            )
            return
        if not release.is_at_least(3, 2):
            line.number("max-message-size")
        decoder = self._message_decoder()
        for notice in self._notices:
            self._out.write(f"{notice}\n")
        limit = line.number("max-bytes") if release.is_at_least(3, 3) else LogOptions().limit
        options = LogOptions(deep, data, not line.has("skip-record-metadata"), limit)
        dump_log(file, options, decoder, release, self._reports, self._out)

    def _prints_data(self) -> bool:
        line = self._line
        if line.has("print-data-log"):
            return True
        names = (*DECODER_OPTIONS, "value-decoder-class", "key-decoder-class")
        return self._release.decoder_prints_data and any(line.has(name) for name in names)

    def _index_options(self) -> IndexOptions:
        line = self._line
        return IndexOptions(
            line.has("index-sanity-check"), line.has("verify-index-only"), line.number("max-message-size")
        )

    def _time_index_options(self) -> IndexOptions:
        line = self._line
        return IndexOptions(line.has("index-sanity-check"), line.has("verify-index-only"))

    def _message_decoder(self) -> Decoder:
        if self._decoder is None:
            self._decoder = self._new_decoder(self._line)
        return self._decoder

    def _new_decoder(self, line: CommandLine) -> Decoder:
        for option in DECODER_OPTIONS:
            if line.has(option):
                from tidelog.dump.decoders import decoder_for

                return decoder_for(option, self._release)
        key_class, value_class = line.value("key-decoder-class"), line.value("value-decoder-class")
        if key_class == value_class == (NEW_DECODER if self._release.is_at_least(3, 8) else OLD_DECODER):
            return PlainText()
        from tidelog.dump.decoders import class_decoder

        decoder = class_decoder(key_class, value_class, self._release)
        self._notices = decoder.notices
        return decoder
