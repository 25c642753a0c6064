"""An MQTT broker for tests: mosquitto on loopback, installed or unpacked."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import paho.mqtt.client as mqtt

# Where `.ci/run` unpacks it.
FOLDER = Path(".pytest_cache/d/servers/mosquitto").resolve()


def mosquitto():
    """Path of the program, and of the libraries it needs beside it; None where there is none."""
    found = shutil.which("mosquitto") or next(map(str, FOLDER.glob("usr/sbin/mosquitto")), None)
    libraries = [str(path.parent) for path in FOLDER.glob("usr/lib/*/libmosquitto.so.1")]
    return (found, ":".join(libraries)) if found else None


class MqttBroker:
    """A broker that keeps messages for sessions that are away."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        lines = (f"listener {self.port} 127.0.0.1", "allow_anonymous true", "max_queued_messages 0", "user root")
        (folder / "mosquitto.conf").write_text("\n".join([*lines, "max_inflight_messages 500", ""]))
        program, libraries = mosquitto()
        self._start = {"args": [program, "-c", str(folder / "mosquitto.conf")], "stderr": subprocess.DEVNULL}
        self._start["env"] = os.environ | {"LD_LIBRARY_PATH": libraries}
        self.start()

    def start(self):
        self.process = subprocess.Popen(**self._start)
        deadline = time.monotonic() + 10
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    @staticmethod
    def subscribe(source, table):
        """Let the session of a bridge begin: from now on the broker keeps messages for it."""
        from bcmdist.data.mqtt import Bridge

        bridge, subscribed = Bridge(source, table), []
        bridge._client.on_subscribe = lambda *_: subscribed.append(True)
        bridge.run(lambda: bool(subscribed))

    @contextlib.contextmanager
    def publisher(self, qos=1):
        """A function that publishes a row as JSON, or bytes; at the end all are acknowledged."""
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
        client.max_inflight_messages_set(500)
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        sent = []  # the last one

        def publish(topic, row):
            value = row if isinstance(row, bytes) else json.dumps(row).encode()
            while (one := client.publish(topic, value, qos=qos)).rc == mqtt.MQTT_ERR_QUEUE_SIZE:
                time.sleep(0.01)  # 65535 of them wait already
            sent[:] = [one]

        try:
            yield publish
            for one in sent:
                one.wait_for_publish(60)
        finally:
            client.disconnect()
            client.loop_stop()

    def restart(self):
        """End it, which closes all connections, and start it again."""
        self.stop()
        self.start()

    def stop(self):
        self.process.kill()
        self.process.wait()
