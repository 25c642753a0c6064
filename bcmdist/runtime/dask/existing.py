"""An existing cluster, named by the address of its scheduler, a Dask client, or a cluster object.

A cluster object (such as those of dask-jobqueue, or a `LocalCluster` that adapts) starts workers by itself, possibly
long after it was asked. It knows of workers that are to start, which a scheduler does not.
"""

from dataclasses import dataclass
from typing import Any

import distributed
import psutil

from bcmdist.errors import InvalidOption


@dataclass(frozen=True)
class ExistingCluster:
    """A cluster to connect to."""

    address: str
    """of its scheduler"""
    security: distributed.Security | None = None
    """certificates of the client or cluster object; None if there is neither"""
    cluster: Any = None
    """the cluster object, if known"""

    def starting(self) -> bool:
        """Whether workers are to start that have not arrived; False without a cluster object."""
        plan, observed = (set(getattr(self.cluster, name, ())) for name in ("plan", "observed"))
        return bool(plan - observed)


def existing_cluster(where: Any) -> ExistingCluster:
    """Return the cluster named by an address, a `distributed.Client` or a cluster object.

    Raises
    ------
    InvalidOption
    """
    if isinstance(where, str):
        return ExistingCluster(where)
    client = isinstance(where, distributed.Client)
    address = getattr(where.scheduler, "address", None) if client else getattr(where, "scheduler_address", None)
    if not isinstance(address, str):
        raise InvalidOption(
            "expected the address of a scheduler, such as tcp://HOST:8786, a Dask client or a cluster object, got "
            f"{type(where).__name__}; give one of these"
        )
    security = getattr(where, "security", None)
    security = security if isinstance(security, distributed.Security) else None
    return ExistingCluster(address, security, where.cluster if client else where)


def nothing_starts() -> bool:
    """Return False: no worker is known to be starting."""
    return False


def active_client() -> distributed.Client | None:
    """Return the default Dask client of this process, which Dask's own collections use; None if there is none."""
    try:
        return distributed.default_client()
    except ValueError:
        return None


def on_this_machine(client: distributed.Client) -> bool:
    """Whether all workers of a client's cluster run on this machine; True while there are none."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    ours = {address.address for addresses in psutil.net_if_addrs().values() for address in addresses}
    return {worker["host"] for worker in workers} <= ours
