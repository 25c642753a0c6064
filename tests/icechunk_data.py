"""Repositories of Icechunk for tests, on this disk."""

import icechunk
import zarr

icechunk.set_logs_filter("error")


def new_repository(path):
    """A repository without arrays."""
    return icechunk.Repository.create(icechunk.local_filesystem_storage(str(path)))


def append(repository, X, y, *, rows_per_chunk=50, branch="main", group=None):
    """Append rows, and return the snapshot."""
    session = repository.writable_session(branch)
    root = zarr.open_group(session.store, mode="a", path=group)
    if "X" not in root:
        root.create_array("X", shape=(0, X.shape[1]), chunks=(rows_per_chunk, X.shape[1]), dtype="f8")
        root.create_array("y", shape=(0,), chunks=(rows_per_chunk,), dtype="f8")
    for name, values in {"X": X, "y": y}.items():
        before = root[name].shape[0]
        root[name].resize((before + len(values), *values.shape[1:]))
        root[name][before:] = values
    return session.commit("more rows")
