"""kio and kafka-python, which have readers and writers of their own, understand our bytes as we do.

Their tables are of other releases than ours, so only versions that both have are compared. kio turns numbers into
durations, dates and names of errors, and drops what does not fit: the values here are tame.
"""

import datetime
import enum
import io
import pkgutil
import uuid
import warnings
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from pkgutil import resolve_name
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer

from tests.protocol.values import Dice, Version, all_versions
from tidelog import protocol
from tidelog.protocol.schema import ZERO_UUID

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of importlib.resources, on Python 3.11
    import kafka.protocol
    from kafka.protocol.api_message import ApiMessage

    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" not in module.name and not module.name.endswith("generate_stubs"):
            import_module(module.name)

OURS = {(version.message.name, version.number): version for version in all_versions()}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# kafka-python reads an ApiVersionsResponse with an error as version 0, and cannot write a DeleteTopicsRequest it read.
WITH_THEIR_OWN_WAYS = ("ApiVersionsResponse", "DeleteTopicsRequest")
MILLISECOND = datetime.timedelta(milliseconds=1)


def versions_of_kio() -> Iterator[tuple[Version, Any]]:
    for numbers in schema_name_map.values():
        for number, paths in numbers.items():
            for path in paths.values():
                entity = resolve_name(path)
                if (entity.__name__, number) in OURS:
                    yield OURS[entity.__name__, number], entity


def versions_of_kafka_python() -> Iterator[tuple[Version, Any]]:
    for message in ApiMessage.__subclasses__():
        if message.__name__ in WITH_THEIR_OWN_WAYS:
            continue
        for number in range(message.max_version + 1):
            if (message.__name__, number) in OURS:
                yield OURS[message.__name__, number], message


KIO = list(versions_of_kio())
KAFKA_PYTHON = list(versions_of_kafka_python())


def check_kio(version: Version, entity: Any, value: protocol.Struct) -> None:
    data = version.message.write(value, version.number)
    read, size = entity_reader(entity)(data, 0)
    assert size == len(data), version
    assert_means_the_same(value, read)
    written = io.BytesIO()
    entity_writer(entity)(written, read)
    assert written.getvalue() == data, version


def assert_means_the_same(ours: Any, theirs: Any) -> None:
    if is_dataclass(theirs):
        for field in fields(theirs):
            assert_means_the_same(getattr(ours, our_name(field.name, ours)), getattr(theirs, field.name))
    elif isinstance(theirs, tuple):
        assert len(ours) == len(theirs)
        for our_element, their_element in zip(ours, theirs, strict=True):
            assert_means_the_same(our_element, their_element)
    else:
        assert ours == as_number(theirs, ours)


def our_name(theirs: str, ours: protocol.Struct) -> str:
    """kio leaves the unit of a duration away and keeps clear of the names that Python has."""
    plain = theirs.rstrip("_").replace("k_raft", "kraft")
    return plain if plain in ours.field_defaults else f"{plain}_ms"


def as_number(theirs: Any, ours: Any) -> Any:
    if isinstance(theirs, datetime.timedelta):
        return theirs // MILLISECOND
    if isinstance(theirs, datetime.datetime):
        return (theirs - EPOCH) // MILLISECOND
    if isinstance(theirs, enum.Enum):
        return theirs.value
    return ZERO_UUID if theirs is None and isinstance(ours, uuid.UUID) else theirs


def test_kio_reads_and_writes_every_version_as_we_do() -> None:
    assert len(KIO) > 500
    dice = Dice(Random(3), tame=True, unknown_tags=False)
    for version, entity in KIO:
        check_kio(version, entity, dice.value(version))


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.sampled_from(KIO), st.randoms(use_true_random=False))
def test_kio_reads_and_writes_any_value_as_we_do(pair: tuple[Version, Any], random: Random) -> None:
    version, entity = pair
    check_kio(version, entity, Dice(random, tame=True, unknown_tags=False).value(version))


def test_kafka_python_reads_and_writes_every_version_as_we_do() -> None:
    assert len(KAFKA_PYTHON) > 300
    dice = Dice(Random(4), unknown_tags=False)
    for version, message in KAFKA_PYTHON:
        value = dice.value(version)
        data = version.message.write(value, version.number)
        read = message.decode(data, version=version.number)
        assert read.encode() == data, version
