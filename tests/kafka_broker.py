"""A Kafka broker for tests: the mock cluster of librdkafka, in this process, on loopback.

It speaks the protocol of Kafka, keeps 5 MB of each partition of a topic and removes what is older; other processes can
connect. It is no Apache Kafka: no transactions of several producers, no compaction, nothing on disk.
"""

import json

import confluent_kafka


class KafkaBroker:
    """A cluster of one broker, and a producer."""

    def __init__(self):
        settings = {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0, "linger.ms": 5}
        self.producer = confluent_kafka.Producer(settings)
        (broker,) = self.producer.list_topics(timeout=10).brokers.values()
        self.address = f"{broker.host}:{broker.port}"

    def create(self, topic):
        """Create a topic of four partitions; the mock cluster does so when a producer asks for it."""
        self.producer.list_topics(topic, timeout=10)

    def publish(self, topic, row, partition=0):
        """Add a message, whose value is JSON or bytes; `producer.flush` waits until all are there."""
        value = row if isinstance(row, bytes | None) else json.dumps(row).encode()
        while True:
            try:
                return self.producer.produce(topic, value, partition=partition)
            except BufferError:
                self.producer.poll(0.1)

    def stop(self):
        self.producer.flush()
        del self.producer
