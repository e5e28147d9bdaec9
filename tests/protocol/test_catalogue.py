"""Messages are found by name, key and type, as Kafka 4.3 finds them."""

import pytest

from tidelog import protocol
from tidelog.errors import ProtocolError, UnsupportedError


def test_a_name_that_is_not_there_brings_the_nearest() -> None:
    with pytest.raises(UnsupportedError, match="no message is called 'OffsetCommitValues'.*'OffsetCommitValue'"):
        protocol.message("OffsetCommitValues")


def test_requests_and_responses_are_found_by_their_key() -> None:
    assert protocol.request(0).name == "ProduceRequest"
    assert protocol.response(18).name == "ApiVersionsResponse"
    assert len(protocol.api_keys()) == 93
    for key in protocol.api_keys():
        assert protocol.request(key).valid_versions == protocol.response(key).valid_versions
        assert protocol.request(key).api_key == protocol.response(key).api_key == key
    with pytest.raises(UnsupportedError, match="no API has the key 200 in Kafka 4.3"):
        protocol.request(200)


def test_records_of_the_metadata_log_are_found_by_their_key() -> None:
    assert protocol.metadata_record(2).name == "TopicRecord"
    assert protocol.metadata_record(27).name == "RegisterControllerRecord"
    with pytest.raises(UnsupportedError, match="no record of the metadata log has the key 6 "):
        protocol.metadata_record(6)


def test_records_of_coordinators_are_found_by_their_type() -> None:
    key, value = protocol.coordinator_record("group", 1)
    assert value is not None
    assert (key.name, value.name) == ("OffsetCommitKey", "OffsetCommitValue")
    legacy_key, legacy_value = protocol.coordinator_record("group", 0)
    assert legacy_value is not None
    assert (legacy_key.name, legacy_value.name) == ("LegacyOffsetCommitKey", "LegacyOffsetCommitValue")
    assert protocol.coordinator_record("group", 4)[0].name == "ConsumerGroupPartitionMetadataKey"
    assert protocol.coordinator_record("transaction", 0)[0].name == "TransactionLogKey"
    assert protocol.coordinator_record("share", 1)[0].name == "ShareUpdateKey"
    for gone in (9, 18):  # of early previews of share and streams groups
        with pytest.raises(UnsupportedError, match=f"the group coordinator has no record type {gone} in Kafka 4.3"):
            protocol.coordinator_record("group", gone)
    with pytest.raises(UnsupportedError, match="no coordinator 'streams'; there are group, share, transaction"):
        protocol.coordinator_record("streams", 0)


def test_every_key_of_a_coordinator_has_its_value() -> None:
    found = 0
    for family in ("group", "share", "transaction"):
        for record_type in range(40):
            try:
                key, value = protocol.coordinator_record(family, record_type)
            except UnsupportedError:
                continue
            assert value is not None
            assert key.name.removesuffix("Key") == value.name.removesuffix("Value")
            found += 1
    assert found == 25


def test_a_default_of_json_null_is_the_empty_value() -> None:
    """Kafka's generator does not see such a default: the class has an empty struct there, and not null."""
    member = protocol.message("ConsumerGroupMemberMetadataValue")
    assert member.new().classic_member_metadata == member.structs["ClassicMemberMetadata"]()
    assert protocol.message("OffsetFetchRequest").new().topics == []
    assert protocol.message("StreamsGroupHeartbeatRequest").new().topology is None  # of the text "null"


def test_the_header_of_a_version_that_does_not_exist_is_known() -> None:
    write_markers = 27  # its versions are 1 and 2, and both are flexible
    assert protocol.request(write_markers).valid_versions == range(1, 3)
    assert [protocol.request_header_version(write_markers, version) for version in (0, 1, 3)] == [2, 2, 2]
    assert [protocol.response_header_version(write_markers, version) for version in (0, 1, 3)] == [1, 1, 1]
    assert [protocol.request_header_version(1, version) for version in (0, 11, 12, 99)] == [1, 1, 2, 2]


def test_the_header_of_a_request_says_where_its_body_begins() -> None:
    header_type = protocol.message("RequestHeader")
    for version, client in ((1, "me"), (2, None)):
        api_version = {1: 3, 2: 9}[version]
        header = header_type.new(request_api_key=0, request_api_version=api_version, correlation_id=7, client_id=client)
        data = header_type.write(header, version)
        assert protocol.read_request_header(b"...." + data + b"body", 4) == (header, 4 + len(data))
    with pytest.raises(ProtocolError, match="four bytes at least"):
        protocol.read_request_header(b"\0\0")
    with pytest.raises(UnsupportedError, match="no API has the key 200"):
        protocol.read_request_header(b"\x00\xc8\0\0\0\0")
