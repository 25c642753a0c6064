"""Run functions in a scheduler's process; jobs start their coordinators on the scheduler's machine this way."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from bcmdist.errors import VersionMismatch
from bcmdist.runtime.dask.connection import CONNECT_SECONDS, client_of, in_a_thread, shake_hands
from bcmdist.runtime.dask.security import lend_certificates, security_for


def answers(address, seconds=CONNECT_SECONDS) -> bool:
    """Whether something answers the Dask handshake at an address within `seconds`."""
    try:
        in_a_thread(shake_hands(address, seconds, security_for(address, None)))
    except (OSError, TimeoutError, ValueError):
        return False
    return True


class SchedulerMachine:
    """Runs functions in the process of a scheduler. The cluster needs no workers for this.

    Raises
    ------
    InvalidOption, SchedulerUnreachable, CertificateRefused, VersionMismatch
    """

    def __init__(self, address: str, *, connect_seconds: float = CONNECT_SECONDS, security=None):
        self.address = address
        self._client = client_of(address, connect_seconds, security)
        try:
            self._refuse_other_version()
            self._client.run_on_scheduler(lend_certificates)
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
        """Run a short function in the scheduler's process, which is blocked meanwhile, and return its result."""
        return self._client.run_on_scheduler(function, *arguments)

    def close(self) -> None:
        """Disconnect from the scheduler."""
        self._client.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
