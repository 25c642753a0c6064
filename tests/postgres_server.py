"""A PostgreSQL server for tests, on loopback, as a user that is not root."""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

PASSWORD = "open-secret"


def programs():
    """Folder of initdb and postgres; None where there is none."""
    found = shutil.which("initdb") or next(map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))), None)
    return Path(found).resolve().parent if found else None


class PostgresServer:
    """A server with the database `postgres`."""

    password = PASSWORD

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"postgresql+psycopg://owner:{PASSWORD}@127.0.0.1:{self.port}/postgres"
        other = {"user": "nobody", "cwd": folder} if os.geteuid() == 0 else {"cwd": folder}
        (folder / "password").write_text(PASSWORD)
        folder.chmod(0o777)
        options = ["--username", "owner", "--pwfile", "password", "--auth", "scram-sha-256", "--no-sync"]
        subprocess.run([programs() / "initdb", "-D", "data", *options], check=True, capture_output=True, **other)
        start = [programs() / "postgres", "-D", "data", "-h", "127.0.0.1", "-p", str(self.port), "-k", "", "-F"]
        self.process = subprocess.Popen(start, stderr=subprocess.DEVNULL, **other)
        deadline = time.monotonic() + 20
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def stop(self):
        self.process.terminate()
        self.process.wait()
