"""Claims: divide the entries of a Redis Stream between several ingesters of one model.

A claim is a pending entry of a consumer group named after the model. It only decides which ingester of a model
directory processes an entry first. Claims may be lost, or be held by a copy of the model: then some work is done
twice, and the ledger still counts each entry once.
"""

import os
import socket
import uuid

from bcmdist.data.redis import RedisStream, connect, patiently, redis_errors

# Claims that one command lists at most; more than are ever in progress.
MOST_CLAIMS = 100_000


class Claims:
    """Claims of one consumer.

    Retries, duplicates and loss: every method may be repeated; if the response to a claim is lost, the next call finds
    the claim.
    """

    def __init__(self, place: RedisStream, group: str, consumer: str | None):
        self.place, self.group = place, group
        self.consumer = consumer or f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._errors = redis_errors()

    def newest(self) -> str:
        """Return the largest id ever claimed in the group."""
        groups = self._command(lambda client: client.xinfo_groups(self.place.stream)) or []
        ours = (group["last-delivered-id"] for group in groups if group["name"] == self.group.encode())
        return next(ours, b"0-0").decode()

    def free(self, ids: list[str], idle_ms: int) -> list[str]:
        """Return the `ids` (ascending) that no other consumer has claimed within the last `idle_ms` milliseconds."""
        taken = {number for number, line in self._lines(ids).items() if self._is_of_others(line, idle_ms)}
        return [number for number in ids if number not in taken]

    def _is_of_others(self, line, idle_ms):
        return line["consumer"] != self.consumer.encode() and line["time_since_delivered"] < idle_ms

    def take(self, ids: list[str], idle_ms: int) -> set[str]:
        """Claim the `ids` (ascending) that no other consumer has claimed within the last `idle_ms` milliseconds; return
        the ids that this consumer now holds."""
        if not ids:
            return set()
        words = ("XCLAIM", self.place.stream, self.group, self.consumer, idle_ms, *ids)
        words += ("FORCE", "JUSTID", "LASTID", ids[-1])  # redis-py's xclaim lacks LASTID
        self._command(lambda client: client.execute_command(*words, parse_justid=True), make=True)
        ours = self.consumer.encode()
        return {number for number, line in self._lines(ids).items() if line["consumer"] == ours}.intersection(ids)

    def release(self, ids: list[str]) -> None:
        """Release the claims on entries that were committed."""
        for first in range(0, len(ids), 1000):
            some = ids[first : first + 1000]
            self._command(lambda client, some=some: client.xack(self.place.stream, self.group, *some))

    def close(self) -> None:
        """Leave the group, unless entries are claimed: deleting a consumer would delete its claims."""
        client = connect(self.place.server)
        try:
            if not client.xpending_range(self.place.stream, self.group, "-", "+", 1, self.consumer):
                client.xgroup_delconsumer(self.place.stream, self.group, self.consumer)
        except self._errors.RedisError:
            pass
        client.close()

    def _lines(self, ids):
        """Return the claims of all consumers between the first and the last of `ids`, by id."""
        if not ids:
            return {}
        ask = (self.place.stream, self.group, ids[0], ids[-1], MOST_CLAIMS)
        lines = self._command(lambda client: client.xpending_range(*ask)) or []
        return {line["message_id"].decode(): line for line in lines}

    def _command(self, ask, *, make=False):
        """Return the server's response; None if the group does not exist. With `make` the group is created first."""

        def attempt(client):
            try:
                return ask(client)
            except self._errors.ResponseError as error:
                if not str(error).startswith(("NOGROUP", "no such key")):
                    raise
                if not make:
                    return None
                self._make_group(client)
                return ask(client)

        return patiently(self.place, attempt)

    def _make_group(self, client):
        try:
            client.xgroup_create(self.place.stream, self.group, id="0", mkstream=True)
        except self._errors.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):  # another process created it
                raise
