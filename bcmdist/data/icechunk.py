"""Access to Icechunk: repositories of versioned Zarr data, of which a snapshot never changes.

`icechunk:///PATH[?branch=NAME&group=PATH]` is a group at the tip of a branch, `icechunk+s3://BUCKET/PREFIX` one in an
object store (credentials and endpoint as of s3://); with `&snapshot=ID` it is the group in that snapshot. Whatever
opens a group by its tip goes on with the snapshot of that moment.
"""

import os
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlencode

from bcmdist.errors import DataNotFound, InvalidOption, MissingExtra

LOCAL, S3 = "icechunk", "icechunk+s3"  # schemes


def _icechunk():
    try:
        import icechunk
    except ImportError as error:
        raise MissingExtra("data: Icechunk needs icechunk; pip install 'bcmdist[icechunk]'") from error
    icechunk.set_logs_filter("error")  # it would warn on stdout
    return icechunk


def on_icechunk(url) -> bool:
    """Whether a URL is of a repository of Icechunk."""
    return str(url).startswith((f"{LOCAL}://", f"{S3}://"))


@dataclass(frozen=True)
class Repository:
    """A group of a repository."""

    scheme: str
    place: str
    """absolute path, or BUCKET/PREFIX"""
    branch: str = "main"
    group: str = ""
    snapshot: str = ""
    """empty: the tip of the branch"""

    @classmethod
    def of(cls, url) -> "Repository":
        """Parse a URL.

        Raises
        ------
        InvalidOption
        """
        scheme, _, rest = str(url).partition("://")
        place, _, text = rest.partition("?")
        query = dict(parse_qsl(text))
        if (
            scheme not in (LOCAL, S3)
            or not place
            or "@" in place
            or not query.keys() <= {"branch", "group", "snapshot"}
        ):
            raise InvalidOption(
                f"data: expected {LOCAL}:///PATH or {S3}://BUCKET/PREFIX [?branch=NAME&group=PATH&snapshot=ID], got "
                f"{scheme}://{rest.rpartition('@')[2]:.80}; correct the URL"
            )
        place = os.path.abspath(place) if scheme == LOCAL else place.strip("/")
        return cls(scheme, place, **query)

    @property
    def url(self) -> str:
        fields = {"group": self.group, "snapshot": self.snapshot}
        fields |= {} if self.branch == "main" or self.snapshot else {"branch": self.branch}
        query = urlencode({name: value for name, value in fields.items() if value}, safe="/")
        return f"{self.scheme}://{self.place}" + (f"?{query}" if query else "")

    def at(self, snapshot) -> "Repository":
        """Return the same group in a snapshot."""
        return replace(self, snapshot=snapshot)

    def history(self, first=None) -> list[str]:
        """Return the snapshots of the branch that are kept, oldest first; from `first` on, if it is among them.

        Raises
        ------
        DataNotFound, MissingExtra
        """

        def ids(repository):
            found = list[str]()
            for one in repository.ancestry(branch=self.branch):
                found.append(one.id)
                if one.id == first:
                    break
            return found[::-1]

        return self._asked(ids)

    def tip(self) -> "Repository":
        """Return the group in its snapshot, or in the newest one of its branch."""
        return self if self.snapshot else self.at(self._asked(lambda one: one.lookup_branch(self.branch)))

    def store(self) -> Any:
        """Return the Zarr store of its snapshot."""
        return self._asked(lambda repository: repository.readonly_session(snapshot_id=self.tip().snapshot).store)

    def changes(self, later: "Repository") -> Any:
        """Return what differs in a later snapshot, as Icechunk reports it."""
        ends = {"from_snapshot_id": self.snapshot, "to_snapshot_id": later.snapshot}
        return self._asked(lambda repository: repository.diff(**ends))

    def _asked(self, ask):
        try:
            return ask(_opened(self.scheme, self.place))
        except _icechunk().IcechunkError as error:
            reason = str(error).strip().splitlines()[0].strip(" x")
            raise DataNotFound(
                f"{self.url}: expected a repository of Icechunk with this branch or snapshot, got: {reason}; correct "
                "the URL, or keep snapshots until they are absorbed, and for as long as they may be forgotten"
            ) from error


@lru_cache(maxsize=16)
def _opened(scheme, place):
    """Open a repository."""
    icechunk = _icechunk()
    if scheme == LOCAL:
        if not os.path.isdir(place):
            raise DataNotFound(f"data: expected a repository of Icechunk at {place}, found none; check the path")
        return icechunk.Repository.open(icechunk.local_filesystem_storage(place))
    bucket, _, prefix = place.partition("/")
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    local = {"endpoint_url": endpoint, "allow_http": True, "force_path_style": True} if endpoint else {}
    region = os.environ.get("AWS_REGION")
    storage = icechunk.s3_storage(bucket=bucket, prefix=prefix or None, region=region, from_env=True, **local)
    return icechunk.Repository.open(storage)
