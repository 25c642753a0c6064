"""The software of client, scheduler and workers is compared, and shown as a table where it differs."""

import subprocess

import pytest

from bcmdist.app.cli.main import _lines
from bcmdist.errors import BcmdistWarning, VersionMismatch
from bcmdist.runtime import software as of_process
from bcmdist.runtime.dask.versions import check_versions
from bcmdist.runtime.software import PACKAGES, software

OURS = software()
WORKERS = ["tcp://a:1", "tcp://b:2", "tcp://c:3"]


class Cluster:
    """A client of workers whose software differs; None: without bcmdist."""

    def __init__(self, scheduler=None, **theirs):
        self.scheduler = OURS | (scheduler or {})
        self.theirs = {where: OURS | theirs.get(where[6], {}) for where in WORKERS}
        self.without = {where for where in WORKERS if theirs.get(where[6], {}).get("bcmdist") == "none"}

    def run(self, function, *arguments, workers=None, on_error):
        assert on_error == "return"
        chosen = workers or WORKERS
        if function is software:
            missing = Exception("ModuleNotFoundError")
            return {one: missing if one in self.without else self.theirs[one] for one in chosen}
        name = arguments[0] if arguments else "python"
        return {one: self.theirs[one][name] for one in chosen}

    def run_on_scheduler(self, function):
        assert function is software
        return self.scheduler


def test_the_same_software_is_accepted_and_a_worker_that_died_left_out():
    cluster = Cluster(a={"python": OURS["python"].rpartition(".")[0] + ".99", "commit": "other"})
    cluster.theirs["tcp://c:3"] = OSError("died")
    assert check_versions(cluster) == {"tcp://a:1", "tcp://b:2"}


def test_what_differs_is_named_with_both_versions_and_shown_as_a_table():
    cluster = Cluster(
        a={"numpy": "1.0", "dask": "2020.1"}, b={"numpy": "1.0", "dask": "2020.1"}, scheduler={"zarr": "3.0"}
    )
    with pytest.raises(VersionMismatch) as caught:
        check_versions(cluster)
    text, *table = str(caught.value).split("\n")
    assert f"zarr {OURS['zarr']}, got 3.0 on scheduler; " in text
    assert f"numpy {OURS['numpy']}, got 1.0 on tcp://a:1" in text
    assert "(3 of scheduler and workers differ); install the same versions there" in text
    cells = [[one.strip() for one in row.strip("|").split("|")] for row in table]
    assert cells == [
        ["package", "client", "scheduler", "tcp://a:1 and 1 more"],
        ["numpy", OURS["numpy"], OURS["numpy"], "1.0"],
        ["zarr", OURS["zarr"], "3.0", OURS["zarr"]],
        ["dask", OURS["dask"], OURS["dask"], "2020.1"],
    ]
    assert _lines(caught.value).split("\n")[1:] == table


@pytest.mark.parametrize("name", ["scipy", "dask", "distributed", "python"])
def test_a_difference_that_need_not_matter_is_a_warning(name):
    with pytest.warns(BcmdistWarning, match=rf"expected .*: {name} .*, got 1.0.1 on tcp://b:2 \(1 of"):
        check_versions(Cluster(b={name: "1.0.1"}))


def test_another_source_of_the_same_version_is_refused():
    with pytest.raises(VersionMismatch, match=rf"source {OURS['source']}.*, got .*\(source 0123456789, commit abc\)"):
        check_versions(Cluster(c={"source": "0123456789", "commit": "abc"}), ["tcp://c:3"])


def test_a_worker_without_the_package_is_named_with_the_others_it_has():
    with pytest.raises(VersionMismatch, match=r"got none \(source none\) on tcp://b:2"):
        check_versions(Cluster(b={"bcmdist": "none"}))


def test_the_commit_of_a_checkout(tmp_path):
    def git(*words):
        done = subprocess.run(["git", "-C", tmp_path, "-c", "user.name=n", "-c", "user.email=e", *words], check=True,
                              capture_output=True, text=True)  # fmt: skip
        return done.stdout.strip()

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    for step in ([], ["pack-refs", "--all"], ["checkout", "-q", "--detach"]):
        if step:
            git(*step)
        assert of_process._commit(tmp_path / ".git") == git("rev-parse", "HEAD")
    assert set(OURS) == {*PACKAGES, "python", "source", "commit"}
