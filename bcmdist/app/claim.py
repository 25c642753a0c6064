"""The claim of a coordinator to a job: only the newest one writes into its journal."""

import os
import secrets
import socket

from bcmdist.app.journal import STATES, Journal


class Superseded(BaseException):
    """A later coordinator has taken the job."""


class Claim:
    """A coordinator's right to a job, which ends when another one has started after it."""

    def __init__(self, journal: Journal):
        self.journal = journal
        self.token = secrets.token_hex(8)
        self.mine = False
        self.cancelled = False

    def take(self) -> bool:
        """Write that this coordinator has started; False where there is nothing to do."""
        facts = {"host": socket.gethostname(), "pid": os.getpid(), "by": self.token}
        while True:
            self.journal.news()
            names = [e["event"] for e in self.journal.since_asked()]
            if any(STATES.get(name) in ("finished", "failed", "cancelled", "interrupted") for name in names):
                return False
            if self.journal.put("started", **facts):
                self.mine, self.cancelled = True, "cancel" in names
                return True

    def look(self) -> None:
        """Read what others have written.

        Raises
        ------
        Superseded
        """
        for event in self.journal.news():
            if event["event"] == "started" and event["by"] != self.token:
                self.mine = False
            self.cancelled |= event["event"] in ("cancel", "cancelled")
        if not self.mine:
            raise Superseded

    def record(self, event, **facts) -> None:
        """Write an event, unless the claim is lost.

        Raises
        ------
        Superseded
        """
        self.look()
        while not self.journal.put(event, by=self.token, **facts):
            self.look()
