"""Claims: which of several ingesters works on which entry of a Redis Stream.

A claim is a pending entry of a consumer group that is named after the model. It only decides who looks at an entry
first, so that ingesters of one model directory share the work. Claims may be lost, or be those of a copy of the model:
then some work is done twice, and the ledger counts each entry once.
"""

import os
import socket
import uuid

from bcmdist.data.redis import RedisStream, connect, patiently, redis_errors

# Claims that one command lists at most; more than are ever in progress.
MOST_CLAIMS = 100_000


class Claims:
    """Claims of one consumer.

    Retries, duplicates and loss: every method may be repeated; a claim whose answer is lost is found by the next one.
    """

    def __init__(self, place: RedisStream, group: str, consumer: str | None):
        self.place, self.group = place, group
        self.consumer = consumer or f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._errors = redis_errors()

    def newest(self) -> str:
        """The largest id that was ever claimed in the group."""
        groups = self._command(lambda client: client.xinfo_groups(self.place.stream)) or []
        ours = (group["last-delivered-id"] for group in groups if group["name"] == self.group.encode())
        return next(ours, b"0-0").decode()

    def free(self, ids: list[str], idle_ms: int) -> list[str]:
        """Those of `ids`, ascending, that no other consumer has claimed within so many milliseconds."""
        taken = {number for number, line in self._lines(ids).items() if self._is_of_others(line, idle_ms)}
        return [number for number in ids if number not in taken]

    def _is_of_others(self, line, idle_ms):
        return line["consumer"] != self.consumer.encode() and line["time_since_delivered"] < idle_ms

    def take(self, ids: list[str], idle_ms: int) -> set[str]:
        """Claim `ids`, ascending, that no other consumer has claimed within so many milliseconds; those that are ours
        now."""
        if not ids:
            return set()
        words = ("XCLAIM", self.place.stream, self.group, self.consumer, idle_ms, *ids)
        words += ("FORCE", "JUSTID", "LASTID", ids[-1])  # the last of which the client's own method lacks
        self._command(lambda client: client.execute_command(*words, parse_justid=True), make=True)
        ours = self.consumer.encode()
        return {number for number, line in self._lines(ids).items() if line["consumer"] == ours}.intersection(ids)

    def release(self, ids: list[str]) -> None:
        """These entries are committed."""
        for first in range(0, len(ids), 1000):
            some = ids[first : first + 1000]
            self._command(lambda client, some=some: client.xack(self.place.stream, self.group, *some))

    def close(self) -> None:
        """Leave the group, unless entries are claimed: with a consumer its claims are removed."""
        client = connect(self.place.server)
        try:
            if not client.xpending_range(self.place.stream, self.group, "-", "+", 1, self.consumer):
                client.xgroup_delconsumer(self.place.stream, self.group, self.consumer)
        except self._errors.RedisError:
            pass
        client.close()

    def _lines(self, ids):
        """Claims of all consumers between the first and the last of some ids, by id."""
        if not ids:
            return {}
        ask = (self.place.stream, self.group, ids[0], ids[-1], MOST_CLAIMS)
        lines = self._command(lambda client: client.xpending_range(*ask)) or []
        return {line["message_id"].decode(): line for line in lines}

    def _command(self, ask, *, make=False):
        """The server's answer; None where there is no group, which is made if it is needed."""

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
            if not str(error).startswith("BUSYGROUP"):  # somebody else made it
                raise
