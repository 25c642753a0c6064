"""Jobs: their journal, their coordinator, and their commands, with a machine that is this process."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.api.request_json import from_json, to_json
from bcmdist.api.requests import FitRequest
from bcmdist.app import jobs
from bcmdist.app.cli import jobs as jobcommands
from bcmdist.app.cli.main import cli
from bcmdist.app.coordinator import Claim, Superseded, Watch, WatchedRuntime, coordinate
from bcmdist.app.journal import Journal, open_job
from bcmdist.app.service.work import Work
from bcmdist.errors import BcmdistError, BcmdistWarning, SchedulerUnreachable, UnsafeData
from bcmdist.runtime.dask.scheduler import SchedulerMachine
from bcmdist.runtime.interface import silent
from bcmdist.storage.locate import open_storage
from problems import assert_same_committee

FIT = ["--no-learn", "--query", "30", "--rows-per-expert", "20", "--kernel", "se"]
CHUNKS = ["--partition", "chunks"]
SCHEDULER = ["--scheduler", "tcp://127.0.0.1:8786"]


def serial(address, watch):
    return SerialRuntime(progress=watch.progress)


class ThisMachine:
    """Runs coordinators here, to their end."""

    address = SCHEDULER[1]

    def __init__(self, make_runtime=serial):
        self.make_runtime = make_runtime

    def run(self, function, *arguments):
        if function is not jobs.spawn:
            return function(*arguments)
        coordinate(open_job(*arguments), self.make_runtime)
        return socket.gethostname(), 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """The scheduler's machine as commands find it, and the directory of jobs in the environment."""
    machine = ThisMachine()
    monkeypatch.setattr(jobcommands, "_machine", lambda address, tls: machine)
    monkeypatch.setenv("BCMDIST_JOBS", str(tmp_path / "jobs"))
    return machine


def call(*arguments):
    """The figures of a command that must succeed."""
    result = CliRunner().invoke(cli, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


def refused(*arguments, code=1):
    """What a command says that must fail."""
    result = CliRunner().invoke(cli, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result.stderr


def names(journal):
    return [event["event"] for event in journal.events]


@pytest.fixture
def journal(tmp_path):
    """A job that has been submitted and that nobody has started."""
    storage = open_storage(tmp_path / "jobs")
    request = {"command": "fit", "request": {}, "places": {}, "software": "0"}
    storage.put_if_absent("20260101-000000-abcd/request.json", json.dumps(request).encode())
    journal = Journal(storage, "20260101-000000-abcd")
    journal.append("submitted", scheduler=SCHEDULER[1])
    return journal


# --- Journal and claim ---


def test_all_writers_share_one_log(journal):
    """At once: no event is lost, none is changed, and each writer's own keep their order."""

    def write(writer):
        for k in range(8):
            writer.append("note", writer=id(writer), k=k)

    writers = [open_job(journal.storage.url, journal.id) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, writers))
    journal.news()
    assert len(journal.events) == 1 + 3 * 8
    for writer in writers:
        assert [e["k"] for e in journal.events if e.get("writer") == id(writer)] == list(range(8))
        writer.news()
        assert writer.events == journal.events
    assert not Journal(journal.storage, journal.id).put("late")  # number 1 is taken: nothing is overwritten


def test_an_older_coordinator_cannot_write(journal):
    old, new = (Claim(open_job(journal.storage.url, journal.id)) for _ in range(2))
    assert old.take()
    old.record("progress")
    assert new.take()
    with pytest.raises(Superseded):
        old.record("progress")
    new.record("progress")
    with pytest.raises(Superseded):
        old.record("finished")
    journal.news()
    assert names(journal) == ["submitted", "started", "progress", "started", "progress"]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("request.json", b"{", "JSONDecodeError"),
        ("request.json", b'{"command": "fit"}', "TypeError: expected a field request, found nothing"),
        ("request.json", b'["fit"]', "TypeError"),
        ("request.json", b"[" * 10**5, "RecursionError"),
        ("events/00000002.json", b"\xff", "UnicodeDecodeError"),
        (
            "events/00000002.json",
            b'{"event": "started", "at": "now", "host": "h", "by": "me"}',
            "TypeError: .*a field pid",
        ),
        (
            "events/00000002.json",
            b'{"event": "finished", "at": "now", "result": 3}',
            "TypeError: .*as result, found 3",
        ),
    ],
)
def test_a_job_that_cannot_be_read_is_listed_with_the_reason(journal, name, text, reason, tmp_path, machine):
    folder = tmp_path / "jobs/20260101-000001-bad0"
    (folder / "events").mkdir(parents=True)
    good = tmp_path / "jobs" / journal.id
    for part in ("request.json", "events/00000001.json"):
        (folder / part).write_bytes((good / part).read_bytes())
    (folder / name).write_bytes(text)
    found = rf"found something else \({reason}.*\); remove this job's directory"
    said = f"{folder}/{name}: expected a record of a job, {found}"
    first, second = call("jobs")["jobs"]
    assert (first["id"], first["state"]) == (journal.id, "submitted")
    assert (second["id"], second["state"], second["error"]) == (folder.name, "unreadable", "JobDamaged")
    assert re.fullmatch(said, second["message"])
    lines = CliRunner().invoke(cli, ["jobs"]).output.splitlines()
    assert [line.split()[0] for line in lines] == [journal.id, folder.name]
    assert "JobDamaged: " in refused("status", folder.name)


STARTED = {"event": "started", "host": socket.gethostname(), "pid": 1, "by": "me"}
ASKED = {"command": "fit", "request": {}, "places": {"data": "/data.zarr"}}
NOT_WRITTEN = [
    ("events/00000001.json", {"event": "submitted", "scheduler": 8786}),
    ("events/00000001.json", {"event": "submitted"}),
    ("events/00000001.json", {"event": "submitted", "scheduler": "tcp://h:1", "share": "all"}),
    ("events/00000002.json", STARTED | {"pid": -1}),
    ("events/00000002.json", STARTED | {"pid": 2**70}),
    ("events/00000002.json", STARTED | {"pid": True}),
    ("events/00000002.json", {"event": "finished", "result": {"rows": "x", "seconds": 1.0}}),
    ("events/00000002.json", {"event": "finished", "result": {"rows": 1, "seconds": [1]}}),
    ("events/00000002.json", {"event": "finished", "result": {}, "seconds_by_stage": 3}),
    ("events/00000002.json", {"event": "failed", "error": [], "message": "x"}),
    ("events/00000002.json", {"event": "progress", "stage": 3}),
    ("events/00000002.json", {"event": "progress", "stage": "s", "partitions_done": "x", "partitions": 2}),
    ("events/00000002.json", {"event": "progress", "rows_per_second": float("nan")}),
    ("events/00000002.json", {"event": "progress", "seconds_by_stage": {"a": "b"}}),
    ("events/00000002.json", {"event": "waiting", "message": {}}),
    ("events/00000002.json", {"event": ["started"]}),
    ("request.json", ASKED | {"places": {"data": 3}}),
    ("request.json", ASKED | {"places": {"state": "finished"}}),
]


@pytest.mark.parametrize(("name", "record"), NOT_WRITTEN)
def test_a_record_that_no_job_writes_does_not_keep_others_from_being_listed(journal, name, record, tmp_path, machine):
    """Of whatever type its entries are: the job is named, by each way to ask, and the rest is told."""
    folder = tmp_path / "jobs/20260101-000001-bad0"
    (folder / "events").mkdir(parents=True)
    good = tmp_path / "jobs" / journal.id
    for part in ("request.json", "events/00000001.json"):
        (folder / part).write_bytes((good / part).read_bytes())
    (folder / name).write_text(json.dumps({"at": "now"} | record))
    listed = {job["id"]: (job["state"], job.get("error")) for job in call("jobs")["jobs"]}
    assert listed == {journal.id: ("submitted", None), folder.name: ("unreadable", "JobDamaged")}
    work = Work(jobs=str(tmp_path / "jobs"), models=str(tmp_path))
    assert [job["state"] for job in work.listed()] == ["submitted", "unreadable"]
    assert [job["state"] for job in work.newest(9, {})] == ["unreadable", "submitted"]
    for command in ("status", "logs", "cancel", "resume"):
        assert "JobDamaged: " in refused(command, folder.name)


@pytest.mark.parametrize("events", [[], ["cancelled"]])
def test_a_job_whose_scheduler_nobody_wrote_down_is_resumed_at_one_that_is_named(journal, events, tmp_path, machine):
    """Its client died after the request was written, and before the first event."""
    path = tmp_path / "jobs" / journal.id / "events"
    for number, event in enumerate(events, 1):
        (path / f"{number:08d}.json").write_text(json.dumps({"event": event, "at": "now"}))
    if not events:
        (path / "00000001.json").unlink()
    assert "expected the address of a scheduler" in refused("resume", journal.id)
    assert call("resume", journal.id, *SCHEDULER)["state"] == "failed"  # since it asks for nothing
    assert call("status", journal.id)["scheduler"] == SCHEDULER[1]


@pytest.mark.parametrize("name", ["", "events", "request.json", "events/00000002.json", "output.txt"])
def test_links_within_the_directory_of_jobs_are_refused(journal, name, tmp_path, machine):
    """They are neither read nor written through."""
    elsewhere = tmp_path / "elsewhere"
    at = tmp_path / "jobs" / journal.id / name
    if at.exists():
        at.rename(elsewhere)
    at.symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    follow = (jobs.spawn if name == "output.txt" else open_job, str(tmp_path / "jobs"), journal.id)
    with pytest.raises(UnsafeData, match=f"{at}: expected a job of this directory, it is a link to {elsewhere}; "):
        follow[0](*follow[1:])
    if name != "output.txt":
        assert "UnsafeData: " in refused("cancel", journal.id)
        assert [job["state"] for job in call("jobs")["jobs"]] == ["unreadable"]
    if not name:
        with pytest.raises(UnsafeData, match="is a link"):
            journal.append("cancelled")
    assert sorted(elsewhere.rglob("*")) == before


def test_a_coordinator_of_a_job_that_has_ended_does_nothing(journal):
    journal.append("cancelled")
    coordinate(journal)
    assert names(journal) == ["submitted", "cancelled"]


def test_events_about_progress_are_few(journal):
    claim = Claim(journal)
    claim.take()
    watch = Watch(claim)
    watch.rows = 5000
    for done in range(1001):
        watch.progress("experts", done, 1000)
        watch._look()
    assert names(journal) == ["submitted", "started", "progress"]  # within 2 s: that the stage has begun
    watch.progress("predict", 0, 10)
    watch._look()
    told = journal.events[-1]
    assert (told["stage"], told["partitions_done"], told["partitions"]) == ("predict", 0, 10)
    assert set(told["seconds_by_stage"]) == {"experts", "predict"}


def test_a_stage_without_partitions_is_progress_too(journal):
    """As of a resumed job of which another coordinator has done all."""
    claim = Claim(journal)
    claim.take()
    watch = Watch(claim)
    watch.rows = 5000
    watch.progress("experts", 0, 0)
    watch._look()
    assert (journal.events[-1]["partitions_done"], journal.events[-1]["partitions"]) == (0, 0)


def test_partitions_that_are_given_up_are_named(journal):
    """Of a runtime that computes partitions one by one."""
    parts = [SimpleNamespace(key=f"a[{k}:{k + 5}]", rows=5) for k in range(0, 20, 5)]
    closed = []

    class OneByOne:
        allowed_bytes, threads, progress = 1e9, 1, staticmethod(silent)

        def each(self, work, *, label):
            try:
                for _, some in work:
                    error = PoisonedOnce("killed two workers") if some[0] is parts[1] else None
                    yield SimpleNamespace(parts=some, result=None, error=error)
            finally:
                closed.append(label)

    claim = Claim(journal)
    claim.take()
    watch = Watch(claim)
    work = (("task", [part]) for part in parts)
    outcomes = WatchedRuntime(OneByOne(), watch).each(work, label="ingest")
    assert [next(outcomes).parts for _ in range(3)] == [[part] for part in parts[:3]]
    outcomes.close()
    assert closed == ["ingest"]
    watch.flush()
    assert watch.absorbed == 10  # rows of two
    assert jobs.status(journal)["quarantined"] == ["a[5:10]"]
    (event,) = (e for e in journal.events if e["event"] == "quarantined")
    assert (event["error"], event["message"]) == ("PoisonedOnce", "killed two workers")


class PoisonedOnce(BcmdistError):
    """An error of a partition."""


# --- The commands ---


def test_submit_and_look(wave, tmp_path, machine):
    path, *_ = wave
    done = call("submit", "fit", path, "--model", tmp_path / "m", *FIT, *CHUNKS, *SCHEDULER)
    assert (done["command"], done["state"], done["jobs"]) == ("fit", "finished", str(tmp_path / "jobs"))
    told = call("status", done["id"])
    keys = ["stage", "partitions_done", "partitions", "rows_per_second", "seconds_by_stage", "worker_failures"]
    assert {"id", "command", "state", *keys, "model", "error", "message"} <= set(told)
    assert (told["stage"], told["partitions_done"], told["partitions"]) == ("left out", 8, 8)
    assert (told["worker_failures"], told["error"], told["model"]) == (0, None, str(tmp_path / "m"))
    assert told["rows_per_second"] > 0
    assert {"survey", "experts"} <= set(told["seconds_by_stage"])
    assert told["result"]["rows"] == 240
    calm = call("fit", path, "--model", tmp_path / "calm", *FIT, *CHUNKS, "--serial")
    assert told["result"]["log_evidence"] == calm["log_evidence"]
    assert_same_committee(GBCM.load(tmp_path / "m").committee, GBCM.load(tmp_path / "calm").committee)
    predict = call("submit", "predict", tmp_path / "m", path, "--out", tmp_path / "p.zarr", *SCHEDULER)
    assert call("status", predict["id"])["result"]["rows"] == 240
    assert zarr.open_group(tmp_path / "p.zarr", mode="r")["mean"].shape == (240,)
    again = call("submit", "ingest", tmp_path / "m", path, *SCHEDULER)
    assert call("status", again["id"])["result"]["duplicates"] == 10
    listed = call("jobs")["jobs"]
    assert sorted(one["id"] for one in listed) == sorted([done["id"], predict["id"], again["id"]])
    text = CliRunner().invoke(cli, ["jobs"]).output
    assert all(word in text for word in (done["id"], "predict", "finished", str(tmp_path / "p.zarr")))
    text = CliRunner().invoke(cli, ["logs", done["id"], "--follow"]).output
    assert [line.split()[1] for line in text.splitlines()][:2] == ["submitted", "started"]
    assert text.splitlines()[-1].split()[1] == "finished"
    assert [e["event"] for e in call("logs", done["id"])["events"]][-1] == "finished"
    assert "it has finished" in refused("resume", done["id"])
    assert "it has finished; there is nothing to cancel" in refused("cancel", done["id"])


def test_commands_that_change_or_score_a_model_are_jobs_too(wave, make_data, tmp_path, machine):
    path, X, y, *_ = wave
    halves = [make_data(f"half{k}.zarr", rows_per_chunk=20, X=X[k::2], y=y[k::2]) for k in range(2)]

    def result(*arguments):
        return call("status", call("submit", *arguments, *SCHEDULER)["id"])["result"]

    call("fit", halves[0], "--model", tmp_path / "one", *FIT, *CHUNKS, "--serial")
    call("fit", halves[1], "--model", tmp_path / "two", *CHUNKS, "--like", tmp_path / "one", "--serial")
    merged = result("merge", tmp_path / "one", tmp_path / "two", "--model", tmp_path / "both")
    assert merged["rows"] == 240
    assert (
        result("score", tmp_path / "both", path)["rmse"] == call("score", tmp_path / "both", path, "--serial")["rmse"]
    )
    entry = GBCM.load(tmp_path / "both").ledger[0]
    forgotten = result("forget", tmp_path / "both", entry.key)
    assert (forgotten["forgotten"], forgotten["rows"]) == (1, 240 - entry.rows)
    assert result("refit", tmp_path / "both", "--effort", "quick")["rows"] == 240 - entry.rows
    assert GBCM.load(tmp_path / "both").history()[-1]["operation"] == "refit or revert"


def test_changes_that_cannot_be_made_are_refused_before_they_are_submitted(wave, tmp_path, machine):
    path, *_ = wave
    for name in ("one", "two"):
        call("fit", path, "--model", tmp_path / name, *FIT, *CHUNKS, "--serial")
    assert "InvalidOption" in refused("submit", "forget", tmp_path / "one", "nothing", *SCHEDULER)
    text = refused("submit", "merge", tmp_path / "one", tmp_path / "two", "--model", tmp_path / "two", *SCHEDULER)
    assert "ModelExists: " in text
    assert "expected a new or empty directory" in text
    assert not (tmp_path / "jobs").exists()


def test_a_forecast_is_a_job_too(tmp_path, machine, rng):
    series = tmp_path / "series.csv"
    series.write_text("y\n" + "\n".join(f"{np.sin(0.3 * k) + 0.1 * rng.standard_normal():.6f}" for k in range(200)))
    call("import", series, tmp_path / "lagged.zarr", "--y", "y", "--lags", 4)
    call("fit", tmp_path / "lagged.zarr", "--model", tmp_path / "m", *FIT, *CHUNKS, "--serial")
    done = call("submit", "forecast", tmp_path / "m", series, "--steps", 5, "--out", tmp_path / "f.csv", *SCHEDULER)
    assert call("status", done["id"])["result"] == {"steps": 5, "series": 1, "out": str(tmp_path / "f.csv")}
    here = call("forecast", tmp_path / "m", series, "--steps", 5)["forecast"]
    assert len((tmp_path / "f.csv").read_text().splitlines()) == 1 + len(here["step"])
    inside = call("status", call("submit", "forecast", tmp_path / "m", "--steps", 5, *SCHEDULER)["id"])["result"]
    assert inside["forecast"] == here


def test_a_request_holds_what_was_given_and_no_relative_path(wave, tmp_path, machine, monkeypatch):
    path, *_ = wave
    monkeypatch.chdir(tmp_path)
    Path("fit.toml").write_text('query = 20\nlearn = false\nkernel = "se"\n[set]\nkernel.lengthscale = [0.7, 0.9]\n')
    done = call("submit", "fit", Path(path).name, "--model", "m", "--config", "fit.toml", "--query", 10, *SCHEDULER)
    journal = open_job(tmp_path / "jobs", done["id"])
    settings = Settings(kernel="se", query=10, learn=False, set={"kernel.lengthscale": [0.7, 0.9]})
    assert from_json(journal.request["request"]) == FitRequest(path, f"{tmp_path}/m", settings)
    assert journal.request["places"] == {"data": path, "model": f"{tmp_path}/m"}
    result = jobs.status(journal)["result"]
    assert (result["query"], result["hyperparameters"]["kernel.lengthscale"]) == (10, [0.7, 0.9])


def test_what_is_refused_before_anything_is_written(wave, tmp_path, machine):
    path, *_ = wave
    model = ["--model", tmp_path / "m"]
    assert "No such option" in refused("submit", "fit", path, *model, "--querry", 3, *SCHEDULER, code=2)
    assert "expected --scheduler ADDRESS" in refused("submit", "fit", path, *model, code=2)
    assert "expected one of --scheduler" in refused("submit", "fit", path, *model, *SCHEDULER, "--serial", code=2)
    assert "Missing option '--model'" in refused("submit", "fit", path, *SCHEDULER, code=2)
    assert "InvalidOption: query" in refused("submit", "fit", path, *model, "--query", 0, *SCHEDULER)
    assert "DataNotFound: " in refused("submit", "fit", tmp_path / "no.zarr", *model, *SCHEDULER)
    assert "ModelNotFound: " in refused("submit", "ingest", tmp_path / "m", path, *SCHEDULER)
    call("fit", path, *model, *FIT, "--serial")
    assert "DataExists: " in refused("submit", "predict", tmp_path / "m", path, "--out", path, *SCHEDULER)
    out = ["--out", tmp_path / "p.zarr"]
    assert "DataNotFound: " in refused("submit", "predict", tmp_path / "m", tmp_path / "no", *out, *SCHEDULER)
    assert "DataNotFound: " in refused("submit", "ingest", tmp_path / "m", tmp_path / "no.zarr", *SCHEDULER)
    assert not (tmp_path / "jobs").exists()


def test_a_scheduler_that_does_not_answer(wave, tmp_path, monkeypatch):
    path, *_ = wave
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{s.getsockname()[1]}"
    command = ["submit", "fit", path, "--model", tmp_path / "m", "--jobs", tmp_path / "jobs", "--scheduler", address]
    monkeypatch.setattr(jobcommands, "_machine", lambda address, tls: SchedulerMachine(address, connect_seconds=1))
    assert f"SchedulerUnreachable: expected a Dask scheduler at {address}" in refused(*command)
    assert not (tmp_path / "jobs").exists()


def test_a_directory_that_the_scheduler_does_not_share(wave, tmp_path, machine, monkeypatch):
    path, *_ = wave
    monkeypatch.setattr(jobs, "_read", lambda url, name: ("host7", ""))
    said = refused("submit", "fit", path, "--model", tmp_path / "m", *SCHEDULER)
    assert "WorkerCannotRead: jobs: expected a directory that the scheduler's machine host7" in said
    assert "--jobs or BCMDIST_JOBS" in said
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize("job", ["20260101-000000-zzzz", "../m", "x"])
def test_a_job_that_is_not_there(job, machine):
    for command in ("status", "logs", "cancel", "resume"):
        assert f"JobNotFound: {jobs_directory()}: expected a job {job!r}, there is none" in refused(command, job)
    assert call("jobs")["jobs"] == []


def jobs_directory():
    return os.environ["BCMDIST_JOBS"]


@pytest.mark.parametrize("command", ["submit", "jobs", "status", "logs", "cancel", "resume"])
def test_every_command_has_help_with_an_example(command):
    out = CliRunner().invoke(cli, [command, "--help"])
    assert out.exit_code == 0
    assert "Example: bcmdist" in out.output
    assert "--json" in out.output


def test_help_of_what_is_submitted():
    out = CliRunner().invoke(cli, ["submit", "predict", "--help"]).output
    assert "Example: bcmdist submit predict model" in out
    assert "--jobs DIR" in out


# --- The coordinator ---


def submitted(wave, tmp_path, make_runtime):
    """The journal of a fit that was submitted to a machine with this runtime."""
    path, *_ = wave
    return jobs.submit(tmp_path / "jobs", fit_request(path, tmp_path / "m"), ThisMachine(make_runtime))


def fit_request(path, model):
    """What the command line makes of `FIT`."""
    return FitRequest(path, str(model), Settings(learn=False, query=30, rows_per_expert=20, kernel="se"))


def waiting_at(label, act):
    """A runtime that acts once, with its watch, half way of a stage, and then waits to be interrupted."""
    acted = []

    def make(address, watch):
        def progress(stage, done, total):
            watch.progress(stage, done, total)
            if stage == label and 2 * done > total and not acted:
                acted.append(act(watch.claim.journal))
                deadline = time.monotonic() + 20
                while time.monotonic() < deadline:
                    time.sleep(0.01)
                pytest.fail("was not interrupted")

        return SerialRuntime(progress=progress)

    return make


def other(journal):
    """Another writer of the same job."""
    return open_job(journal.storage.url, journal.id)


def test_cancel_stops_it_and_resume_continues(wave, tmp_path, monkeypatch):
    path, *_ = wave
    monkeypatch.setattr("bcmdist.committee.ingest.group_size.MOST", 4)  # fast partitions would all go into one task
    journal = submitted(wave, tmp_path, waiting_at("experts", lambda j: other(j).append("cancel")))
    journal.news()
    told = jobs.status(journal)
    assert (told["state"], told["stage"], told["error"]) == ("cancelled", "experts", None)
    assert 5 < told["partitions_done"] < 10
    assert GBCM.load(tmp_path / "m").commit == 1  # as it was committed before
    jobs.cancel(journal)  # once more changes nothing
    prepared = (tmp_path / "m/commits/00000001.json").read_bytes()
    jobs.resume(journal, ThisMachine())
    assert jobs.status(journal)["state"] == "finished"
    assert jobs.status(journal)["coordinators"] == 2
    assert (tmp_path / "m/commits/00000001.json").read_bytes() == prepared
    call("fit", path, "--model", tmp_path / "calm", *FIT, "--serial")
    assert_same_committee(GBCM.load(tmp_path / "m").committee, GBCM.load(tmp_path / "calm").committee)


def test_a_later_coordinator_ends_an_earlier_one(wave, tmp_path):
    journal = submitted(wave, tmp_path, waiting_at("experts", lambda j: Claim(other(j)).take()))
    journal.news()
    assert names(journal)[-1] == "started"
    assert names(journal).count("started") == 2


def test_a_lost_scheduler_is_an_interruption(wave, tmp_path):
    def gone(address, watch):
        raise SchedulerUnreachable("experts: the scheduler went away")

    journal = submitted(wave, tmp_path, gone)
    told = jobs.status(journal)
    assert (told["state"], told["error"]) == ("interrupted", "SchedulerUnreachable")
    assert told["message"].startswith("scheduler lost: experts")
    assert told["message"].endswith(f"`bcmdist resume {journal.id}`")
    jobs.resume(journal, ThisMachine())
    assert jobs.status(journal)["state"] == "finished"


def test_a_request_of_a_later_version_fails_with_the_field(wave, tmp_path):
    path, *_ = wave
    asked = to_json(fit_request(path, tmp_path / "m")) | {"later": 1}
    record = {"command": "fit", "request": asked, "places": {}, "software": "9"}
    storage = open_storage(tmp_path / "jobs")
    storage.put_if_absent("20260101-000000-abcd/request.json", json.dumps(record).encode())
    journal = Journal(storage, "20260101-000000-abcd")
    journal.append("submitted", scheduler=SCHEDULER[1])
    coordinate(journal, serial)
    told = jobs.status(journal)
    assert (told["state"], told["error"]) == ("failed", "InvalidRequest")
    assert "got 'later'; leave it out, or upgrade bcmdist" in told["message"]


def test_a_failure_is_told_and_can_be_mended(wave, tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m/letter.txt").write_text("mine")
    journal = submitted(wave, tmp_path, serial)
    told = jobs.status(journal)
    assert (told["state"], told["error"]) == ("failed", "ModelExists")
    assert "got one with other files" in told["message"]
    (tmp_path / "m/letter.txt").unlink()
    jobs.resume(journal, ThisMachine())
    told = jobs.status(journal)
    assert (told["state"], told["error"], told["message"]) == ("finished", None, None)


def test_workers_lost_and_warnings_are_events(wave, tmp_path):
    def make(address, watch):
        watch.report("worker lost", worker="tcp://a:1")
        warnings.warn(BcmdistWarning("mind the gap"), stacklevel=2)
        return serial(address, watch)

    journal = submitted(wave, tmp_path, make)
    assert jobs.status(journal)["worker_failures"] == 1
    assert [e["message"] for e in journal.events if e["event"] == "warning"] == ["mind the gap"]


def test_a_coordinator_that_is_gone_and_one_that_works(journal, tmp_path):
    process = subprocess.Popen([sys.executable, "-c", "input()", journal.id], stdin=subprocess.PIPE)
    try:
        journal.append("started", host=socket.gethostname(), pid=process.pid, by="x")
        assert jobs.status(journal)["state"] == "running"
        with pytest.raises(jobs.JobRefused, match=f"{process.pid} is at work on it"):
            jobs.resume(journal, ThisMachine())
    finally:
        process.kill()
        process.communicate()
    told = jobs.status(journal)
    assert (told["state"], told["error"]) == ("interrupted", "CoordinatorLost")
    assert told["message"].endswith(f"`bcmdist resume {journal.id}`")
    jobs.cancel(journal)
    assert names(journal)[-1] == "cancelled"
    assert jobs.status(journal)["message"] is None


def test_a_coordinator_that_does_not_start(tmp_path, monkeypatch):
    def spawn(url, job):
        Path(url, job, jobs.OUTPUT).write_text("a line\nImportError: no numpy\n")
        return socket.gethostname(), 0

    monkeypatch.setattr(jobs, "spawn", spawn)
    machine = ThisMachine()
    machine.run = lambda function, *arguments: function(*arguments)
    with pytest.raises(jobs.JobRefused, match=r"and said 'ImportError: no numpy'; see .*output.txt, then `bcmdist res"):
        jobs.submit(tmp_path / "jobs", fit_request("d", "m"), machine)
    (job,) = jobs.job_ids(tmp_path / "jobs")
    assert jobs.status(open_job(tmp_path / "jobs", job))["state"] == "submitted"
    jobs.cancel(open_job(tmp_path / "jobs", job))
    assert jobs.status(open_job(tmp_path / "jobs", job))["state"] == "cancelled"
