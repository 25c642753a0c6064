"""Kafka access: URLs of topics, and messages of a range of offsets as rows. Each message is a JSON object, one row.

An entry `kafka://BROKERS/TOPIC[PARTITION:FIRST-STOP]` holds the messages with these offsets that exist: a number is
never given to another message, but messages of compacted topics, and markers of transactions, leave numbers out.
Settings of the client, such as passwords, are lines `name=value` of the file in the environment variable BCMDIST_KAFKA.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bcmdist.data.reader import EntryShape
from bcmdist.data.records import Records
from bcmdist.errors import InvalidData, InvalidOption, MissingChunk, MissingExtra, SourceUnreachable

# Seconds for which brokers that do not answer are waited for: they may be restarting.
PATIENCE = 30.0

TOPIC = re.compile(r"kafka://(?P<brokers>[^/@\s]+)/(?P<topic>[\w.-]{1,249})")
WINDOW = re.compile(TOPIC.pattern + r"\[(?P<partition>\d+):(?P<start>\d+)-(?P<stop>\d+)\]")


def kafka_client() -> Any:
    """Return the client library.

    Raises
    ------
    MissingExtra
    """
    try:
        import confluent_kafka
    except ImportError as error:
        raise MissingExtra("source: Kafka needs confluent-kafka; pip install 'bcmdist[kafka]'") from error
    return confluent_kafka


def entry_of(url) -> re.Match:
    """Parse the URL of an entry.

    Raises
    ------
    InvalidOption
    """
    match = WINDOW.fullmatch(str(url))
    if match is None:
        raise InvalidOption(f"data: expected a Zarr data set, {url!s:.80} is a topic; `bcmdist ingest` absorbs it")
    return match


def consumer_of(brokers) -> Any:
    """Return a consumer outside all consumer groups; the caller closes it.

    Raises
    ------
    InvalidOption, MissingExtra
    """
    kafka, path = kafka_client(), os.environ.get("BCMDIST_KAFKA")
    fixed = {"bootstrap.servers": brokers, "group.id": "bcmdist", "enable.auto.commit": False, "log_level": 0}
    ends = {"auto.offset.reset": "error", "enable.partition.eof": True, "isolation.level": "read_committed"}
    try:
        lines = Path(path).read_text().splitlines() if path else []
        settings = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
        return kafka.Consumer(settings | fixed | ends | {"fetch.wait.max.ms": 10})
    except (OSError, ValueError, kafka.KafkaException) as error:
        raise InvalidOption(
            f"BCMDIST_KAFKA: expected a file with lines name=value, settings of librdkafka, got {error!s:.200}; "
            "correct it"
        ) from error


@contextlib.contextmanager
def brokers_answering(url) -> Iterator[None]:
    """Turn errors of brokers into `SourceUnreachable`, which names the URL."""
    try:
        yield
    except kafka_client().KafkaException as error:
        raise SourceUnreachable(
            f"{url}: expected a Kafka broker to answer, got {error.args[0].str():.200}; start it, or correct the URL "
            "or the settings in the file of BCMDIST_KAFKA"
        ) from error


def messages(consumer, entry: re.Match) -> list[tuple[int, bytes | None]]:
    """Return offset and value of the messages of an entry (of `WINDOW`), ascending, up to the end of the topic.

    Raises
    ------
    MissingChunk, SourceUnreachable
    """
    url, start, stop, found = entry[0], int(entry["start"]), int(entry["stop"]), list[tuple[int, bytes | None]]()
    with brokers_answering(url):
        for message in _from(consumer, entry, start):
            if message.offset() >= stop:
                break
            found.append((message.offset(), message.value()))
            if message.offset() == stop - 1:
                break
    return found


def _from(consumer, entry, start):
    """Yield the messages of a partition of a topic from an offset on, up to its end."""
    kafka, url = kafka_client(), entry[0]
    consumer.assign([kafka.TopicPartition(entry["topic"], int(entry["partition"]), start)])
    while (message := consumer.poll(PATIENCE)) is not None:  # an empty one is false
        code = message.error() and message.error().code()
        if code == kafka.KafkaError._PARTITION_EOF:
            return
        if code == kafka.KafkaError._AUTO_OFFSET_RESET:
            raise MissingChunk(
                f"{url}: expected the messages from offset {start} on, they are not kept any more; let the topic keep "
                "messages (retention.ms) until they are absorbed, and for as long as they may be forgotten"
            )
        if code:
            raise kafka.KafkaException(message.error())
        yield message
    raise SourceUnreachable(f"{url}: expected messages, no broker answered for {PATIENCE:g} s; start it")


def records_of(url, found) -> Records:
    """Return messages as rows. Inputs are in alphabetical order, since JSON objects have none.

    Raises
    ------
    InvalidData
    """
    rows = [_parsed(url, *one) for one in found]
    names = tuple(sorted(rows[0])) if rows else ()
    odd = next((k for k, row in enumerate(rows) if tuple(sorted(row)) != names), None)
    if odd is not None:
        raise InvalidData(
            f"{url}: expected the columns {', '.join(names)}, as at offset {found[0][0]}, got {', '.join(rows[odd])} "
            f"at offset {found[odd][0]}; write all rows with the same columns"
        )
    return Records(url, names, [[row[name] for name in names] for row in rows], lambda k: f"offset {found[k][0]}")


def _parsed(url, offset, value):
    try:
        row = json.loads(value or b"")
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise InvalidData(
            f'{url}: expected a JSON object such as {{"a": 1.5, "y": 2}}, got {(value or b"nothing")[:80]!r} at offset '
            f"{offset}; write one row in each message, or go on without these rows (--on-error skip)"
        )
    return row


@dataclass(frozen=True)
class KafkaMessages:
    """`Reader` of entries, for the registry of schemes."""

    def named(self, url) -> str:
        return str(url)

    def shape(self, url, x, y, companions) -> EntryShape:
        return self._records(url).shape(x, y, companions)

    def columns(self, url, x, y, companions) -> dict[str, np.ndarray]:
        return self._records(url).columns(x, y, companions)

    def _records(self, url):
        entry = entry_of(url)
        with contextlib.closing(consumer_of(entry["brokers"])) as consumer:
            return records_of(entry[0], messages(consumer, entry))
