"""The judges themselves: known bytes go in, and Apache Kafka says about them what it is known to say.

When these fail, the set-up is broken and no other verdict of this folder counts.
"""

from pathlib import Path

import pytest

from tests.compat.kafka_tools import (
    BatchSpec,
    JudgedRecord,
    RecordSpec,
    Refused,
    dump_log,
    judge_files,
    judge_read,
    judge_write,
    judge_write_all,
    kafka_version,
    parse_dump,
    run_java,
)

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
T0 = 1_700_000_000_000

# One batch of format 2: k1 -> v1; then null -> v2 with headers h=x and n=null; then k1 -> null. 97 bytes.
THREE_RECORDS = bytes.fromhex(
    "0000000000000000000000550000000002f571305e0000000000020000018bcfe568000000018bcfe5680affffffffffffffff"
    "ffffffffffff0000000314000000046b31047631001e000a02010476320402680278026e0110001404046b310100"
)
COMMIT_MARKER = bytes.fromhex(  # offset 3, leader epoch 2, producer 1000 epoch 3, coordinator epoch 7
    "00000000000000030000004200000002022d22b4320030000000000000018bcfe56be80000018bcfe56be8"
    "00000000000003e80003ffffffff000000012000000008000000010c00000000000700"
)
EMPTY_BATCH = bytes.fromhex(  # offsets 100 to 104, leader epoch 5, producer 42 epoch 1, first sequence 10
    "0000000000000064000000310000000502195cd72a000000000004ffffffffffffffff"
    "0000018bcfe56fd0000000000000002a00010000000a00000000"
)
FORMAT_1 = bytes.fromhex("00000000000000050000001839268c3301000000018bcfe56800000000016b0000000176")  # 5: k -> v
FORMAT_0 = bytes.fromhex("0000000000000005000000101fecd70a0000000000016b0000000176")

DUMP_OF_THREE_RECORDS = """\
baseOffset: 0 lastOffset: 2 count: 3 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 \
partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 0 \
CreateTime: 1700000000010 size: 97 magic: 2 compresscodec: none crc: 4117835870 isvalid: true
| offset: 0 CreateTime: 1700000000000 keySize: 2 valueSize: 2 sequence: -1 headerKeys: [] key: k1 payload: v1
| offset: 1 CreateTime: 1700000000005 keySize: -1 valueSize: 2 sequence: -1 headerKeys: [h,n] payload: v2
| offset: 2 CreateTime: 1700000000010 keySize: 2 valueSize: -1 sequence: -1 headerKeys: [] key: k1
"""

RECORDS = [
    JudgedRecord(0, T0, b"k1", b"v1"),
    JudgedRecord(1, T0 + 5, None, b"v2", (("h", b"x"), ("n", None))),
    JudgedRecord(2, T0 + 10, b"k1", None),
]
RECORD_SPECS: list[RecordSpec] = [
    {"timestamp": r.timestamp, "key": r.key, "value": r.value, "headers": r.headers} for r in RECORDS
]


def segment(folder: Path, base_offset: int, content: bytes = b"") -> Path:
    """A log file under the name Kafka would give it; the dump tool reads the first offset from the name."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base_offset:020}.log"
    path.write_bytes(content)
    return path


def test_the_dump_tool_prints_a_known_batch_as_it_is_known_to(tmp_path: Path) -> None:
    path = segment(tmp_path, 0, THREE_RECORDS)
    result = dump_log([path], "--print-data-log")
    assert (result.exit, result.stderr) == (0, "")
    assert result.stdout == f"Dumping {path}\nLog starting offset: 0\n{DUMP_OF_THREE_RECORDS}"


def test_one_run_dumps_many_files_and_the_parser_keeps_them_apart(tmp_path: Path) -> None:
    contents = {0: THREE_RECORDS, 3: COMMIT_MARKER, 5: FORMAT_1, 100: EMPTY_BATCH}
    paths = [segment(tmp_path, base, content) for base, content in contents.items()]
    paths.append(segment(tmp_path / "v0", 5, FORMAT_0))
    data, marker, format_1, empty, format_0 = parse_dump(dump_log(paths, "--print-data-log").stdout)

    assert [file.name for file in (data, marker, format_1, empty, format_0)] == [str(path) for path in paths]
    assert data.notes == ["Log starting offset: 0"]
    [batch] = data.batches
    assert {
        "count": "3",
        "deleteHorizonMs": "OptionalLong.empty",
        "CreateTime": str(T0 + 10),
    }.items() <= batch.fields.items()
    assert [(r.fields["headerKeys"], r.key, r.payload) for r in batch.records] == [
        ("", "k1", "v1"),
        ("h,n", None, "v2"),
        ("", "k1", None),
    ]
    assert marker.batches[0].records[0].control == "endTxnMarker: COMMIT coordinatorEpoch: 7"
    assert empty.batches[0].fields["lastOffset"] == "104"
    assert empty.batches[0].records == []
    for file, magic, crc in [(format_1, "1", "958827571"), (format_0, "0", "535615242")]:
        [record] = file.batches[0].records
        assert (file.batches[0].fields["magic"], record.fields["crc"]) == (magic, crc)
        assert (record.key, record.payload) == ("k", "v")


def test_the_parser_survives_line_ends_and_the_words_of_the_tool_inside_the_data(tmp_path: Path) -> None:
    path = segment(tmp_path, 0)
    wanted = [("a payload: b", "one\ntwo\n"), ("ключ", "x key: y\r\x85z"), (None, ""), ("", None)]
    records: list[RecordSpec] = [
        {"timestamp": T0, "key": k if k is None else k.encode(), "value": v if v is None else v.encode()}
        for k, v in wanted
    ]
    judge_write([{"records": records}], path)
    [file] = parse_dump(dump_log([path], "--print-data-log").stdout)
    assert [(record.key, record.payload) for record in file.batches[0].records] == wanted


def test_the_judge_reads_the_same_records_from_known_bytes(tmp_path: Path) -> None:
    assert judge_read([segment(tmp_path, 0, THREE_RECORDS)]) == RECORDS


def test_the_judge_tells_batch_fields_markers_and_empty_batches(tmp_path: Path) -> None:
    marker, empty, old, older = judge_files(
        [
            segment(tmp_path, 3, COMMIT_MARKER),
            segment(tmp_path, 100, EMPTY_BATCH),
            segment(tmp_path, 5, FORMAT_1),
            segment(tmp_path, 6, FORMAT_0),
        ]
    )
    [batch] = marker.batches
    assert {
        "producerId": 1000,
        "producerEpoch": 3,
        "isControl": True,
        "isTransactional": True,
    }.items() <= batch.fields.items()
    assert [record.control_type for record in batch.records] == ["COMMIT"]
    [batch] = empty.batches
    assert {"baseOffset": 100, "lastOffset": 104, "lastSequence": 14, "count": 0}.items() <= batch.fields.items()
    assert batch.records == ()
    assert old.batches[0].records == (JudgedRecord(5, T0, b"k", b"v"),)
    assert older.batches[0].records == (JudgedRecord(5, -1, b"k", b"v"),)


def test_the_judge_refuses_a_flipped_bit_and_says_how_far_the_file_was_good(tmp_path: Path) -> None:
    damaged = segment(tmp_path, 0, THREE_RECORDS + COMMIT_MARKER[:-1] + b"\x01")
    torn = segment(tmp_path, 1, THREE_RECORDS + COMMIT_MARKER[:-1])
    bad, short = judge_files([damaged, torn])
    assert (len(bad.batches), bad.valid_bytes, bad.size) == (1, 97, 97 + 78)
    assert bad.error is not None
    assert bad.error.startswith("CorruptRecordException: Record is corrupt (stored crc = 757249074")
    assert (len(short.batches), short.valid_bytes, short.error) == (1, 97, None)
    with pytest.raises(Refused, match="position 97: CorruptRecordException"):
        judge_read([damaged])
    with pytest.raises(Refused, match="77 bytes after the last whole batch"):
        judge_read([torn])


def test_what_the_judge_writes_is_byte_for_byte_the_known_batch(tmp_path: Path) -> None:
    data, marker, empty, old, older = (tmp_path / name for name in ["data", "marker", "empty", "old", "older"])
    k_v: RecordSpec = {"timestamp": T0, "key": b"k", "value": b"v"}
    judge_write_all(
        {
            data: [{"partitionLeaderEpoch": 0, "records": RECORD_SPECS}],
            marker: [
                {
                    "baseOffset": 3,
                    "partitionLeaderEpoch": 2,
                    "producerId": 1000,
                    "producerEpoch": 3,
                    "isTransactional": True,
                    "isControl": True,
                    "records": [{"timestamp": T0 + 1000, "controlType": "COMMIT", "coordinatorEpoch": 7}],
                }
            ],
            empty: [
                {
                    "baseOffset": 100,
                    "lastOffset": 104,
                    "partitionLeaderEpoch": 5,
                    "producerId": 42,
                    "producerEpoch": 1,
                    "baseSequence": 10,
                    "maxTimestamp": T0 + 2000,
                }
            ],
            old: [{"magic": 1, "baseOffset": 5, "records": [k_v]}],
            older: [{"magic": 0, "baseOffset": 5, "records": [k_v]}],
        }
    )
    assert data.read_bytes() == THREE_RECORDS
    assert marker.read_bytes() == COMMIT_MARKER
    assert empty.read_bytes() == EMPTY_BATCH
    assert old.read_bytes() == FORMAT_1
    assert older.read_bytes() == FORMAT_0


def test_the_judge_writes_every_codec_and_reads_it_back(tmp_path: Path) -> None:
    paths = {codec: segment(tmp_path / codec, 0) for codec in CODECS}
    specs: dict[Path, list[BatchSpec]] = {
        path: [{"compression": codec, "records": RECORD_SPECS}] for codec, path in paths.items()
    }
    for codec in ["none", "gzip", "snappy", "lz4"]:  # zstd came after the old formats
        for magic in [0, 1]:
            plain: list[RecordSpec] = [{"timestamp": T0, "key": b"k", "value": b"v" * 100}] * 3
            specs[segment(tmp_path / f"{codec}-{magic}", 0)] = [
                {"magic": magic, "compression": codec, "records": plain}
            ]
    judge_write_all(specs)
    for verdict in judge_files(specs):
        codec, _, old_format = verdict.path.parent.name.partition("-")
        records = [record for batch in verdict.batches for record in batch.records]
        assert verdict.error is None
        assert {batch.fields["compression"] for batch in verdict.batches} == {codec}
        assert {batch.fields["magic"] for batch in verdict.batches} == {int(old_format or 2)}
        assert len(records) == 3
        if not old_format:
            assert records == RECORDS


def test_the_judge_writes_transactions_log_append_time_horizons_and_gaps(tmp_path: Path) -> None:
    path = segment(tmp_path, 0)
    one: RecordSpec = {"timestamp": T0, "value": b"v"}
    judge_write(
        [
            {"producerId": 7, "producerEpoch": 1, "baseSequence": 4, "isTransactional": True, "records": [one, one]},
            {
                "baseOffset": 2,
                "producerId": 7,
                "producerEpoch": 1,
                "isTransactional": True,
                "isControl": True,
                "records": [{"timestamp": T0, "controlType": "ABORT"}],
            },
            {"baseOffset": 3, "timestampType": "LogAppendTime", "logAppendTime": T0 + 99, "records": [one]},
            {"baseOffset": 4, "deleteHorizonMs": T0 + 5, "records": [one]},
            {"baseOffset": 5, "lastOffset": 20, "records": [one, {**one, "offset": 17}]},
            {"baseOffset": 21, "compression": "gzip", "level": 9, "records": [one]},
        ],
        path,
    )
    [verdict] = judge_files([path])
    assert verdict.error is None
    transactional, abort, appended, horizon, gap, levelled = verdict.batches
    assert [record.sequence for record in transactional.records] == [4, 5]
    assert abort.records[0].control_type == "ABORT"
    assert (appended.fields["timestampType"], appended.records[0].timestamp) == ("LogAppendTime", T0 + 99)
    assert horizon.fields["deleteHorizonMs"] == T0 + 5
    assert ([record.offset for record in gap.records], gap.fields["lastOffset"]) == ([5, 17], 20)
    assert levelled.fields["compression"] == "gzip"
    assert [batch.fields["position"] for batch in verdict.batches[:2]] == [0, transactional.fields["size"]]


def test_what_kafka_refuses_to_write_is_told_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="ZStandard compression is not supported for magic 1"):
        judge_write([{"magic": 1, "compression": "zstd", "records": RECORD_SPECS[:1]}], tmp_path / "x.log")


def test_the_jars_are_those_of_the_release_we_name() -> None:
    result = run_java("org.apache.kafka.tools.DumpLogSegments", "--version")
    assert (result.stdout + result.stderr).startswith(kafka_version())
