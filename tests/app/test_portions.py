"""How much of a cluster commands and jobs ask for, and what jobs say while they wait for it."""

from dataclasses import replace

import click
import pytest
from click.testing import CliRunner
from processes import Commands, no_hang, wait_until
from services import asked, fitted
from test_jobs import FIT, SCHEDULER, call, machine, names, refused  # noqa: F401
from test_work import FIT as REQUEST
from test_work import ThisMachine as Here

from bcmdist import DaskRuntime
from bcmdist.app import jobs
from bcmdist.app.cli.options import chosen_place
from bcmdist.app.journal import open_job
from bcmdist.data.writing import write_dataset
from bcmdist.runtime.interface import SerialRuntime
from bcmdist.runtime.portion import Portion

HERE = SCHEDULER[1]


def place(*typed, **configured):
    """What `chosen_place` makes of options on the command line, and of a file's."""
    found = []

    @click.command()
    @click.option("--scheduler")
    @click.option("--workers", type=int)
    @click.option("--serial", is_flag=True)
    @click.option("--share", type=float)
    def command(**options):
        found.append(chosen_place(**options))

    done = CliRunner().invoke(command, list(map(str, typed)), default_map=configured)
    return found[0] if found else done.output


@pytest.mark.parametrize(
    ("typed", "configured", "chosen"),
    [
        (["--workers", 2, *SCHEDULER], {}, {"scheduler": HERE, "workers": 2}),
        (["--share", 0.5, *SCHEDULER], {}, {"scheduler": HERE, "share": 0.5}),
        (["--share", 0.5], {"scheduler": HERE, "workers": 3}, {"scheduler": HERE, "workers": 3, "share": 0.5}),
        (["--workers", 2], {"scheduler": HERE, "share": 0.5}, {"workers": 2}),
        (["--serial"], {"scheduler": HERE, "share": 0.5, "workers": 3}, {"serial": True}),
        (SCHEDULER, {"share": 0.5, "workers": 3}, {"scheduler": HERE, "share": 0.5}),
    ],
)
def test_what_is_typed_wins_over_a_file(typed, configured, chosen):
    assert place(*typed, **configured) == chosen


@pytest.mark.parametrize("typed", [["--share", 0.5], ["--share", 0.5, "--workers", 2], ["--share", 0.5, "--serial"]])
def test_a_share_is_of_a_cluster(typed):
    assert "expected --scheduler ADDRESS beside --share, got none" in place(*typed)


def test_shares_that_are_none_are_refused_before_anything_is_asked(wave, tmp_path, machine):  # noqa: F811
    fit = ["fit", wave[0], "--model", tmp_path / "m", *FIT, *SCHEDULER]
    for share in ("0", "1.5", "nan"):
        for command in (["submit", *fit], fit):
            assert "InvalidOption: --share: expected a part" in refused(*command, "--share", share)
    assert "workers: expected at least 1" in refused("submit", *fit, "--workers", 0)
    assert not (tmp_path / "m").exists()
    assert not (tmp_path / "jobs").exists()


def test_a_job_keeps_its_portion_until_another_is_asked_for(wave, tmp_path, machine):  # noqa: F811
    asked_for = []

    def make(address, watch):
        asked_for.append(jobs.asked_portion(watch.claim.journal))
        watch.report("waiting", message="waiting for worker threads: other jobs hold 2 of 2")
        raise KeyboardInterrupt

    machine.make_runtime = make
    fit = ["submit", "fit", wave[0], "--model", tmp_path / "m", *FIT, *SCHEDULER]
    job = call(*fit, "--share", 0.25, "--workers", 2)["id"]
    assert {name: call("status", job)[name] for name in ("share", "workers")} == {"share": 0.25, "workers": 2}
    call("resume", job)
    call("resume", job)
    call("resume", job, "--workers", 1)
    assert asked_for == [Portion(0.25, 2)] * 3 + [Portion(workers=1)]
    told = call("status", job)
    assert (told["state"], told["share"], told["workers"]) == ("interrupted", None, 1)
    assert told["waiting"] is None  # it has ended
    assert "waiting" in names(open_job(tmp_path / "jobs", job))


def test_a_job_says_what_it_waits_for_until_it_goes_on(wave, tmp_path, machine, monkeypatch):  # noqa: F811
    told = []

    def make(address, watch):
        journal = open_job(tmp_path / "jobs", watch.claim.journal.id)
        for event in ("waiting", "allotted"):
            watch.report(event, message="waiting for worker threads: other jobs hold 2 of 2")
            wait_until(lambda name=event: journal.news() and names(journal)[-1] == name, event)
            told.append(jobs.status(journal)["waiting"])
        return SerialRuntime(progress=watch.progress)

    monkeypatch.setattr("bcmdist.app.jobs.runs", lambda *_: True)  # a coordinator's process, which is this one
    machine.make_runtime = make
    call("submit", "fit", wave[0], "--model", tmp_path / "m", *FIT, *SCHEDULER, "--share", 0.5)
    assert told == ["waiting for worker threads: other jobs hold 2 of 2", None]


def test_jobs_of_a_service_take_its_share(tmp_path, rng):
    fitted(tmp_path / "models")
    X = rng.uniform(-2, 2, (90, 2))
    write_dataset(tmp_path / "data" / "train.zarr", {"X": X, "y": X[:, 0]}, rows_per_chunk=30)
    work = {"data": str(tmp_path / "data"), "scheduler": HERE, "portion": Portion(0.5)}
    with asked(tmp_path / "models", work=work) as client:
        client.service.work = replace(client.service.work, machine=Here)
        job = client.post("/jobs", json=REQUEST).json()["id"]
        assert client.get(f"/jobs/{job}").json()["share"] == 0.5


@pytest.mark.slow
def test_of_two_jobs_with_the_whole_cluster_one_waits_and_both_end(cluster, wave, tmp_path):
    """By their coordinators, processes of their own; the first is a runtime of ours that leaves."""
    address = cluster._client.scheduler.address
    commands = Commands(tmp_path)
    status = lambda job: jobs.status(open_job(tmp_path / "jobs", job))  # noqa: E731
    with no_hang(120):
        with DaskRuntime(address, share=1.0):
            fit = ["submit", "fit", wave[0], *FIT, "--scheduler", address, "--share", 1.0]
            told = [commands.call(*fit, "--model", tmp_path / name)["id"] for name in ("one", "two")]
            for job in told:
                wait_until(lambda job=job: status(job)["waiting"], "a job that waits")
                assert status(job)["waiting"] == "waiting for worker threads: other jobs hold 2 of 2"
        for job in told:
            wait_until(lambda job=job: status(job)["state"] == "finished", "the end of a job")
            allotted = next(e for e in open_job(tmp_path / "jobs", job).events if e["event"] == "allotted")
            assert allotted["threads"] in (1, 2)
