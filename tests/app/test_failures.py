"""Errors of the operating system in words that fit them."""

import contextlib
import errno
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from distributed.comm import CommClosedError

from bcmdist import GBCM, Settings
from bcmdist.app.cli.main import cli
from bcmdist.app.failures import BROKEN_PIPE, described
from bcmdist.data.outputs import new_output
from bcmdist.data.writing import write_dataset
from bcmdist.errors import DataExists, DiskFull
from bcmdist.storage.disk import LocalStorage
from bcmdist.storage.paths import room_for


def no_room(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def raised_by(function, *arguments):
    """The error of a call that must fail."""
    with pytest.raises(OSError, match=r".") as caught:
        function(*arguments)
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
        BrokenPipeError(errno.EPIPE, "Broken pipe"),
        TimeoutError(),
        CommClosedError("in <TCP>: Stream is closed"),
        OSError(errno.EHOSTUNREACH, "No route to host"),
    ],
)
def test_a_connection_that_closed_is_no_matter_of_disks(error):
    name, words = described(error)
    assert name == type(error).__name__
    assert words.startswith(f"expected the other end of a connection to answer, got {str(error) or name}; see that ")
    assert "disk" not in words


def test_a_path_is_named(tmp_path):
    nothing = tmp_path / "nothing"
    _, words = described(raised_by(open, nothing))
    assert words == f"expected {nothing} to be there, it is not; correct the path"
    _, words = described(PermissionError(errno.EACCES, "Permission denied", str(nothing)))
    assert words == f"expected to be let at {nothing}, got Permission denied; correct its permissions, or the path"
    _, words = described(raised_by(open, tmp_path))
    assert words == (
        f"expected a file or directory at {tmp_path} that can be used, got Is a directory; correct the path"
    )
    assert "got broken; run the same command again" in described(OSError(errno.EIO, "broken"))[1].replace(
        "[Errno 5] ", ""
    )


@pytest.mark.parametrize("below", ["", "a/b"])
def test_a_link_that_leads_nowhere_is_named_with_its_target(tmp_path, below):
    link = tmp_path / "link"
    link.symlink_to("gone/away")
    _, words = described(raised_by(open, link / below))
    assert (
        words == f"expected {link / below} to be there, {link} is a link to gone/away, which is not there; correct it"
    )


def test_a_full_disk_comes_with_its_path_and_figures(tmp_path, monkeypatch):
    figures = r"expected room for {}, got: No space left on device \([\d.e+]+ MB free there\); free some"
    with (
        pytest.raises(DiskFull, match=f"{tmp_path}/a/b: " + figures.format("2.5 MB")),
        room_for(tmp_path / "a/b", 2.5e6),
    ):
        no_room()
    name, words = described(OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "a")))
    assert name == "DiskFull"
    assert re.match(f"{tmp_path}/a: " + figures.format("what was to be written"), words)
    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(DiskFull, match=f"{tmp_path}/jobs/one: " + figures.format("0.003 MB")):
        LocalStorage(tmp_path / "jobs").put_if_absent("one", bytes(3000))
    assert not list(tmp_path.glob("jobs/*"))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs a small disk, which only root can mount")
def test_a_data_set_that_a_disk_has_no_room_for(tmp_path):
    (tmp_path / "small").mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path / "small"], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("needs a small disk, which cannot be mounted here")
    X = np.random.default_rng(0).random((40_000, 8))
    try:
        with pytest.raises(
            DiskFull, match=r"small/d.zarr.*: expected room for 2.88 MB, got: No space .* MB free there"
        ):
            write_dataset(tmp_path / "small/d.zarr", {"X": X, "y": X[:, 0]})
        assert not os.listdir(tmp_path / "small")
    finally:
        subprocess.run(["umount", tmp_path / "small"], check=True)


def test_a_thread_that_writes_on_after_a_failure_leaves_nothing(tmp_path):
    """As others of zarr do when the first of them finds the disk full."""

    def write_on(place):
        for number in range(150):
            with contextlib.suppress(FileNotFoundError, FileExistsError):  # it goes in between: is there, and is not
                os.makedirs(place, exist_ok=True)
                Path(place, str(number)).touch()
            time.sleep(0.001)

    threads = []

    def fail():
        with new_output(tmp_path / "out.zarr") as place:
            threads.append(threading.Thread(target=write_on, args=(place,)))
            threads[0].start()
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    threads[0].join()
    assert os.listdir(tmp_path) == []


def test_two_writers_of_one_output(tmp_path):
    """The second finds it there when it has finished, and leaves it as it is."""
    out = tmp_path / "out.zarr"

    def write():
        with new_output(out) as place:
            Path(place).mkdir(exist_ok=True)
            out.mkdir()
            (out / "first").touch()

    with pytest.raises(DataExists, match=r"something has appeared at .*out.zarr meanwhile, .*; choose another path"):
        write()
    assert [path.name for path in tmp_path.iterdir()] == ["out.zarr"]
    assert [path.name for path in out.iterdir()] == ["first"]


@pytest.mark.slow
def test_output_that_nobody_reads_ends_quietly(wave, tmp_path):
    GBCM.fit(wave[0], Settings(query=10, rows_per_expert=60, learn=False), model=tmp_path / "m")
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "bcmdist", "info", str(tmp_path / "m"), "--json"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (BROKEN_PIPE, "")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["info", "LINK"], "ModelNotFound"),
        (["fit", "LINK", "--model", "m", "--serial"], "DataNotFound"),
        (["fit", "DATA", "--model", "LINK", "--serial", "--no-learn", "--query", "5"], "FileNotFoundError"),
        (["fit", "DATA", "--model", "m", "--config", "LINK"], "FileNotFoundError"),
        (["import", "LINK", "new.zarr"], "DataNotFound"),
        (["import", "rows.npz", "LINK"], "DataExists"),
    ],
)
def test_commands_name_a_link_that_leads_nowhere(command, name, tmp_path, wave, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("rows.npz", X=wave[1], y=wave[2])
    link = tmp_path / "link.csv"
    link.symlink_to("gone.csv")
    done = CliRunner().invoke(cli, [{"LINK": str(link), "DATA": wave[0]}.get(word, word) for word in command])
    assert done.exit_code == 1
    assert f"bcmdist: {name}: " in done.stderr
    assert f"{link} is a link to gone.csv, which is not there; " in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.csv", "rows.npz", "wave.zarr"]
