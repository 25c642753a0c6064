"""A Kafka topic as a source: partitions are windows of offsets of a partition of the topic, see `bcmdist.data.kafka`.

Window k of a topic partition holds its offsets from k n up to (k + 1) n, where n is `rows_per_expert`, so that all
readers of one model name a message alike. With `watch` a window is delivered when it is full; otherwise what it holds
is delivered, and later what was added. The offset is the next offset of each topic partition; the brokers' record of
consumer groups is not used.
"""

import warnings
from collections.abc import Iterable
from typing import Any

from bcmdist.data.dataset import COMPANIONS, entry_data
from bcmdist.data.kafka import (
    PATIENCE,
    TOPIC,
    brokers_answering,
    consumer_of,
    entry_of,
    kafka_client,
    messages,
    records_of,
)
from bcmdist.data.partition import Partition
from bcmdist.data.sources.delivery import Delivery
from bcmdist.data.sources.entry_names import EntryNames
from bcmdist.errors import BcmdistError, BcmdistWarning, DataChanged, InvalidOption, MissingChunk


class KafkaTopic:
    """Partitions of one topic.

    Retries, duplicates and loss: a read changes nothing, so it may be repeated, and there is nothing to acknowledge.
    Messages that were removed before they were read, and a topic with fewer messages than were read, are errors.
    """

    def __init__(self, url, options):
        match = TOPIC.fullmatch(str(url))
        if match is None or options.trim:
            place = str(url).rpartition("@")[2].removeprefix("kafka://")
            raise InvalidOption(
                f"source: expected kafka://HOST:PORT[,HOST:PORT]/TOPIC without user, password and --trim, got "
                f"kafka://{place:.80}; correct it (passwords belong into the file of BCMDIST_KAFKA)"
            )
        self.name, self.options, self.topic = match[0], options, match["topic"]
        self._consumer = consumer_of(match["brokers"])
        self._before = options.offsets.get(self.name) or {}
        """next offsets in the newest commit, perhaps of another ingester"""
        self._names = EntryNames(self.name, options.y, options.schema)
        self._ends()

    def read(self, after: Any, most: int) -> list[Delivery]:
        offset, found, ends = dict(after or {}), list[Delivery](), self._ends()
        for number, (low, high) in ends.items():
            found += self._lost(number, low, high, offset)
        while len(found) < most and (number := self._next(offset, ends)) is not None:
            found += self._window(number, *ends[number], offset)
        return found

    def _next(self, offset, ends):
        """Return the topic partition to read from: the one furthest behind of those with a window to deliver."""
        size, watch = self.options.rows_per_expert, self.options.watch
        begun = {number: offset.get(number, 0) for number in ends}
        full = {number: high - high % size if watch else high for number, (_, high) in ends.items()}
        return min((n for n in ends if begun[n] < full[n]), key=lambda n: (begun[n], int(n)), default=None)

    def _lost(self, number, low, high, offset):
        """Move the offset to the first message that is kept; report those that were removed before they were read."""
        read = max(offset.get(number, 0), self._before.get(number, 0))
        if high < read:
            raise DataChanged(
                f"{self.name}: expected the offsets up to {read} in partition {number}, it ends at {high}: the topic "
                "was removed and made again; publish to a topic of another name, and ingest that"
            )
        if offset.get(number, 0) >= low:
            return []
        offset[number] = max(read, low)
        if read >= low:
            return []
        text = f"{self.name}: expected offsets {read} to {low - 1} of partition {number}, they are not kept any more; "
        if not read:
            warnings.warn(BcmdistWarning(f"{text}it is read from offset {low} on"), stacklevel=2)
            return []
        error = MissingChunk(f"{text}raise retention.ms, and publish them again or go on without (--on-error skip)")
        return [Delivery((), dict(offset), bad=(f"{self.name}[{number}:{read}-{low}]", error))]

    def _window(self, number, low, high, offset):
        """Advance the offset to the end of its window, or of the messages; return what is delivered, if any."""
        begun, size = offset.get(number, 0), self.options.rows_per_expert
        first, stop = begun - begun % size, begun - begun % size + size
        entry = entry_of(f"{self.name}[{number}:{first if first >= low else begun}-{stop}]")
        offset[number] = min(stop, high)
        try:
            found = [one for one in messages(self._consumer, entry) if one[0] < offset[number]]
            skipped = sum(place < begun for place, _ in found)
            if skipped == len(found):
                return []
            names = self.options.x, self.options.y
            shape = records_of(entry[0], found).shape(*names, COMPANIONS)
            data = entry_data(entry[0], *names, shape, self.options.schema)
            self._names.warn(shape)
        except BcmdistError as error:
            return [Delivery((), dict(offset), bad=(entry[0], error))]
        return [Delivery((Partition(data, skipped, data.rows),), dict(offset), sum(offset.values()))]

    def ack(self, offset: Any, keys: Iterable[str]) -> None:
        """Nothing to acknowledge."""

    def lag(self, after: Any) -> int:
        """Return the number of windows after an offset."""
        waiting = (high - max(low, (after or {}).get(number, 0)) for number, (low, high) in self._ends().items())
        return sum(-(-max(0, offsets) // self.options.rows_per_expert) for offsets in waiting)

    def close(self) -> None:
        self._consumer.close()

    def _ends(self) -> dict[str, tuple[int, int]]:
        """Return, for each partition of the topic, its first offset and the one after its last."""
        kafka = kafka_client()
        with brokers_answering(self.name):
            topic = self._consumer.list_topics(self.topic, PATIENCE).topics[self.topic]
            if topic.error:
                raise InvalidOption(
                    f"source: expected a topic, {self.name}: {topic.error.str()}; create it, or correct the URL"
                )
            places = [kafka.TopicPartition(self.topic, number) for number in sorted(topic.partitions)]
            return {str(one.partition): self._consumer.get_watermark_offsets(one, PATIENCE) for one in places}
