"""The machine of a running scheduler, where coordinators of jobs are started."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import distributed

from bcmdist.errors import SchedulerUnreachable, VersionMismatch
from bcmdist.runtime.dask.connection import CONNECT_SECONDS, in_a_thread, refuse_tls, shake_hands


def answers(address, seconds=CONNECT_SECONDS) -> bool:
    """Whether something listens at an address."""
    try:
        in_a_thread(shake_hands(address, seconds))
    except (OSError, TimeoutError, ValueError):
        return False
    return True


class SchedulerMachine:
    """Runs functions in the process of a scheduler; it needs no workers.

    Raises
    ------
    InvalidOption, SchedulerUnreachable, VersionMismatch
    """

    def __init__(self, address: str, *, connect_seconds: float = CONNECT_SECONDS):
        refuse_tls(address)
        self.address = address
        try:
            in_a_thread(shake_hands(address, connect_seconds))
            self._client = distributed.Client(address, timeout=connect_seconds, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise SchedulerUnreachable(
                f"expected a Dask scheduler at {address}, none answered within {connect_seconds:g} s; start one with "
                "`dask scheduler`, and name its address by --scheduler"
            ) from error
        try:
            self._refuse_other_version()
        except BaseException:
            self.close()
            raise

    def _refuse_other_version(self):
        ours = version("bcmdist")
        try:
            found = self.run(version, "bcmdist")
        except PackageNotFoundError:
            found = "none"
        if found != ours:
            raise VersionMismatch(
                f"expected bcmdist {ours} on the machine of the scheduler {self.address}, got {found}; install the "
                "same versions everywhere"
            )

    def run(self, function, *arguments) -> Any:
        """The result of a function in the scheduler's process, where it should be quick."""
        return self._client.run_on_scheduler(function, *arguments)

    def close(self) -> None:
        """Leave the cluster."""
        self._client.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
