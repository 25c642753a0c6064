"""What killed processes leave of outputs and of files of models, and who removes it."""

import os
import signal
import subprocess
import sys

import pytest

from bcmdist.data.outputs import new_output
from bcmdist.data.reorder.external_sort import Shuffle
from bcmdist.storage.disk import LocalStorage
from bcmdist.storage.leases import this_process
from bcmdist.storage.temporary import DIGITS, abandoned, owned, partial

START = """
import os, signal, sys
from bcmdist.data.outputs import new_output
from bcmdist.storage.disk import LocalStorage
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
"""
OUTPUT = """
with new_output(sys.argv[1] + "/out.zarr") as place:
    os.makedirs(place + "/X")
    open(place + "/X/zarr.json", "w").close()
    die()
"""
BLOB = """
class Disk:
    def __getattr__(self, name): return die if name == "link" else getattr(os, name)
LocalStorage(sys.argv[1] + "/model", Disk()).put_if_absent("blobs/a", b"some")
"""


def killed(program, folder):
    command = [sys.executable, "-c", START + program, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_an_output_of_a_killed_process_goes_with_the_next_one(tmp_path):
    killed(OUTPUT, tmp_path)
    (left,) = tmp_path.iterdir()
    assert (left / "X/zarr.json").exists()
    with new_output(tmp_path / "other.zarr"):
        assert not left.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["other.zarr"]


def test_a_file_of_a_killed_process_goes_with_the_next_one(tmp_path):
    killed(BLOB, tmp_path)
    (left,) = (tmp_path / "model/blobs").iterdir()
    assert left.name.startswith(".tmp-")
    LocalStorage(tmp_path / "model").put_if_absent("blobs/b", b"other")
    assert os.listdir(tmp_path / "model/blobs") == ["b"]


@pytest.mark.parametrize("prefix", ["a.zarr.partial-", ".tmp-"])
def test_whose_names_are_abandoned(prefix, monkeypatch):
    mine = owned(prefix)
    assert abandoned([mine]) == []
    host, boot, namespace, pid, started, random = mine.removeprefix(prefix).split("-")
    assert int(pid) == os.getpid()

    def changed(**parts):
        now = {"host": host, "boot": boot, "namespace": namespace, "pid": pid, "started": started} | parts
        return abandoned([prefix + "-".join([*now.values(), random])]) != []

    assert changed(started="1")  # the process of that id is another one
    assert changed(pid=str(2**22 + 1))
    assert changed(boot="0" * DIGITS["boot"])
    assert not changed(namespace="0" * DIGITS["namespace"], started="1")
    assert not changed(host="0" * DIGITS["host"], started="1")
    assert not changed(host="0" * DIGITS["host"], boot="0" * DIGITS["boot"])


def test_names_of_others_stay(tmp_path):
    names = ["a.zarr.partial-0a1b2c3d", ".tmp-killed", "partial", f"{owned('b.partial-')}.zarr", owned("c-")]
    for name in names:
        (tmp_path / name).mkdir()
    assert abandoned(names) == []
    partial(str(tmp_path / "d"))
    assert sorted(os.listdir(tmp_path)) == sorted(names)


def test_what_living_processes_write_stays(tmp_path):
    with new_output(tmp_path / "a.zarr") as first:
        with new_output(tmp_path / "a.zarr"):
            assert os.path.isdir(first)
        os.rmdir(tmp_path / "a.zarr")


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path):
    name = owned("a.partial-").replace(f"-{this_process()['started']}-", "-1-")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").touch()
    (tmp_path / name).symlink_to(tmp_path / "kept")
    partial(str(tmp_path / "b"))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept/file").exists()


def test_runs_of_a_killed_process_go_when_sorting_goes_on(tmp_path):
    name = owned(".tmp-").replace(f"-{this_process()['started']}-", "-1-")
    (tmp_path / name).touch()
    (tmp_path / owned(".tmp-")).touch()
    Shuffle(str(tmp_path)).create()
    assert len(os.listdir(tmp_path)) == 1
