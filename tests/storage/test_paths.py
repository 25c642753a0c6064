"""Places where nothing can be written: full disks, and folders that make nothing."""

import errno
import os

import numpy as np
import pytest
import zarr

from bcmdist.api.files import write_columns
from bcmdist.data.writing import write_dataset
from bcmdist.errors import DiskFull, NotAFile
from bcmdist.storage.disk import LocalStorage

ROWS = {"X": np.ones((10, 2)), "y": np.ones(10)}


@pytest.mark.parametrize("name", ["zarr.json", "X/zarr.json", "y/manifest/00000000", "y/c/0"])
def test_a_disk_that_is_full_for_any_file_of_a_data_set_is_named(tmp_path, monkeypatch, name):
    original = zarr.storage.LocalStore.set

    async def full(self, key, *args, **kwargs):
        if key == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return await original(self, key, *args, **kwargs)

    monkeypatch.setattr(zarr.storage.LocalStore, "set", full)
    with pytest.raises(DiskFull, match=r"expected room for .*, got: No space left on device"):
        write_dataset(tmp_path / "a.zarr", ROWS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="a folder that makes nothing")
@pytest.mark.parametrize(
    "write",
    [
        lambda place: LocalStorage(place).put_if_absent("canary", b""),
        lambda place: write_dataset(place, ROWS),
        lambda place: write_columns({"step": np.arange(3)}, f"{place}.csv"),
    ],
    ids=["model", "data set", "table"],
)
def test_a_place_in_a_folder_that_makes_nothing_is_named(write):
    with pytest.raises(NotAFile, match=r"^/proc/m(\.csv)?: expected a folder in which files can be made, found one"):
        write("/proc/m")
