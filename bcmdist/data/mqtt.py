"""A bridge from MQTT to a table that can be ingested (`bcmdist.data.message_table`).

MQTT brokers number no messages and keep none that was acknowledged, so nothing could be read again: by a worker, after
a crash, or to forget it. The bridge has a session that outlives its process, receives with QoS 1 (at least once), and
acknowledges a message once its row is committed to the table, where a number of its publisher tells it from others.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable
from typing import Any

from bcmdist.data.message_table import MessageTable
from bcmdist.errors import InvalidOption, MissingExtra, SourceUnreachable

# Seconds for which a broker that does not answer is tried again: it may be restarting.
PATIENCE = 30.0
MOST_AT_ONCE = 1000  # messages in one transaction

URL = re.compile(r"(?P<scheme>mqtts?)://(?P<host>[^/:@\s]+)(:(?P<port>\d{1,5}))?/(?P<topic>[^\0]+)")


class Bridge:
    """Copies the messages of a topic into a table.

    Retries, duplicates and loss: a killed bridge, and one that lost its broker, receives again what it had not
    acknowledged; the table recognises it. Messages that the broker drops (a full queue, an expired session) are counted
    as missing numbers. Messages published with QoS 0 are refused.

    Parameters
    ----------
    url : mqtt://HOST[:PORT]/TOPIC, or mqtts:// for TLS; user and password in MQTT_USERNAME and MQTT_PASSWORD
    table : URL of the table
    """

    def __init__(self, url, table):
        match = URL.fullmatch(str(url))
        if match is None:
            raise InvalidOption(
                f"bridge: expected mqtt://HOST[:PORT]/TOPIC, got {re.sub('//.*@', '//', str(url)):.80}; correct the "
                "URL (user and password are MQTT_USERNAME and MQTT_PASSWORD)"
            )
        mqtt, self.url, self._topic, self.table = _paho(), match[0], match["topic"], MessageTable(table)
        self.counts = {"rows": 0, "duplicates": 0, "refused": 0}
        self._received: list[Any] = []
        name = hashlib.sha256(f"{self._topic} {self.table.url}".encode()).hexdigest()[:16]
        version = mqtt.CallbackAPIVersion.VERSION2
        self._client = mqtt.Client(version, f"bcmdist-{name}", clean_session=False, manual_ack=True)
        self._client.username_pw_set(os.environ.get("MQTT_USERNAME"), os.environ.get("MQTT_PASSWORD"))
        if match["scheme"] == "mqtts":
            self._client.tls_set()
        self._client.on_message = lambda client, data, message: self._received.append(message)
        self._client.on_connect = self._subscribe
        self._address = match["host"], int(match["port"] or (8883 if match["scheme"] == "mqtts" else 1883))

    def run(self, stop: Callable[[], bool]) -> dict[str, int]:
        """Copy messages until `stop` returns True; return the numbers of rows, duplicates, refused and missing ones.

        Raises
        ------
        SourceUnreachable
        """
        self._patiently(lambda: self._client.connect(*self._address))
        while not stop():
            if self._client.loop(0.1) != 0:
                self._received.clear()  # acknowledging them on a new connection could acknowledge others
                self._patiently(self._client.reconnect)
            while self._received and len(self._received) < MOST_AT_ONCE and self._more():
                pass
            self._store()
        self._client.disconnect()
        return self.counts | {"missing": self.table.missing()}

    def _more(self):
        """Return whether another message has come, without waiting."""
        before = len(self._received)
        return self._client.loop(0) == 0 and len(self._received) > before

    def _store(self):
        """Add what was received to the table, and then acknowledge it."""
        messages, self._received = self._received, []
        if not messages:
            return
        unsafe = next((one for one in messages if one.qos == 0), None)
        if unsafe is not None:
            raise InvalidOption(
                f"{self.url}: expected messages published with QoS 1, which are delivered again until they are stored, "
                f"got one of {unsafe.topic} with QoS 0, which may be lost; publish with QoS 1"
            )
        for name, count in self.table.add([(one.topic, one.payload) for one in messages]).items():
            self.counts[name] += count
        for one in messages:
            self._client.ack(one.mid, one.qos)

    def _subscribe(self, client, data, flags, reason, properties):
        if reason.is_failure:
            raise SourceUnreachable(
                f"{self.url}: expected to be let in, the broker answered {reason}; set MQTT_USERNAME and MQTT_PASSWORD"
            )
        client.subscribe(self._topic, qos=1)

    def _patiently(self, connect):
        """Connect, tried again for `PATIENCE` seconds."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return connect()
            except OSError as error:
                if time.monotonic() > deadline:
                    raise SourceUnreachable(
                        f"{self.url}: expected an MQTT broker, none answered for {PATIENCE:g} s ({error}); start it, "
                        "or correct the URL"
                    ) from error
            time.sleep(0.2)


def _paho():
    try:
        import paho.mqtt.client
    except ImportError as error:
        raise MissingExtra("bridge: MQTT needs paho-mqtt and sqlalchemy; pip install 'bcmdist[mqtt]'") from error
    return paho.mqtt.client


def refuse_broker(url, options) -> Any:
    """Raise `InvalidOption`: a broker keeps no messages, so it is no source."""
    place = re.sub("//.*@", "//", str(url))
    raise InvalidOption(
        f"source: expected one that can be read again, got {place:.80}: MQTT does not keep or number messages; copy "
        f"them into a table by `bcmdist bridge {place:.80} 'sql+sqlite:////PATH/rows.db?table=rows'`, and ingest that"
    )
