"""Jobs over HTTP: requests with names in place of paths, submitted to the scheduler that the service knows.

Who asks names models and data sets, and never learns where they lie, nor the address of the scheduler: whoever reaches
that can run code.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from bcmdist.api.carry_out import check
from bcmdist.api.requests import FitRequest, Request, from_json, named_places
from bcmdist.app import jobs
from bcmdist.app.finite import finite
from bcmdist.app.journal import Journal, job_ids, open_job
from bcmdist.app.service.answers import Refused, without_places
from bcmdist.app.service.names import NAME
from bcmdist.errors import BcmdistError, DataNotFound, InvalidOption, JobRefused
from bcmdist.runtime.dask.scheduler import SchedulerMachine
from bcmdist.runtime.portion import ALL, Portion
from bcmdist.storage.urls import on_objects

HIDDEN = ("coordinator", "scheduler", "host", "pid", "by")
LINES_SHOWN = 8  # of a log, beside how a job stands


@dataclass(frozen=True)
class Work:
    """Where jobs are kept, and what they may name."""

    jobs: str
    """directory of all jobs"""
    models: str
    data: str | None = None
    """directory of data sets and outputs; None: nothing can be submitted"""
    scheduler: str | None = None
    """address; None: likewise"""
    portion: Portion = ALL
    """of the cluster that each job may take"""
    machine: Callable[[str], AbstractContextManager[Any]] = SchedulerMachine

    @property
    def folders(self) -> tuple[str, ...]:
        """Of models, data and jobs, that requests and answers name things in."""
        return tuple(filter(None, (self.models, self.data, self.jobs)))

    def submit(self, asked: dict) -> dict:
        """Submit a request, JSON of `bcmdist.api.requests` with names as places; how its job stands.

        Raises
        ------
        InvalidRequest, InvalidOption, JobRefused, SchedulerUnreachable; what `check` refuses
        """
        if self.data is None or self.scheduler is None:
            raise JobRefused(
                "jobs: expected a service that was started with --scheduler and --data, this one was not; submit "
                "elsewhere"
            )
        request = self._placed(from_json(asked))
        try:
            check(request)
        except DataNotFound as error:
            raise Refused(404, "DataNotFound", without_places(str(error), self.folders)) from error
        with self.machine(self.scheduler) as machine:
            journal = jobs.submit(self.jobs, request, machine, self.portion)
        return self._shown(jobs.status(journal))

    def listed(self) -> list[dict]:
        """How all jobs stand, oldest first."""
        return [self._shown(one) for one in jobs.listed(self.jobs)]

    def status(self, job: str) -> dict:
        """How a job stands; `JobNotFound` where there is none."""
        return self._shown(jobs.status(open_job(self.jobs, job)))

    def log(self, job: str) -> list[dict]:
        """Events of a job, oldest first; `JobNotFound` where there is none."""
        return self._log(open_job(self.jobs, job))

    def newest(self, most: int, known: dict[str, Journal]) -> list[dict]:
        """How the newest jobs stand, newest first, each with the end of its `log`.

        Parameters
        ----------
        known : journals by id, which are read on from where they are; replaced by those of the jobs that are told
        """
        ids = job_ids(self.jobs)[: -most - 1 : -1]
        told, kept = [], dict[str, Journal]()
        for job in ids:
            try:
                kept[job] = known.get(job) or open_job(self.jobs, job)
                kept[job].news()
                told.append(self._shown(jobs.status(kept[job])) | {"log": self._log(kept[job])[-LINES_SHOWN:]})
            except (BcmdistError, OSError) as error:
                told.append({"id": job, "state": "unreadable", "error": type(error).__name__, "log": []})
        known.clear()
        known.update(kept)
        return told

    def _log(self, journal):
        return [self._shown(event) for event in journal.events]

    def cancel(self, job: str) -> dict:
        """Stop a job, and how it stands then."""
        journal = open_job(self.jobs, job)
        jobs.cancel(journal)
        return self._shown(jobs.status(journal))

    def _placed(self, request: Request) -> Request:
        """With paths in place of names."""
        places = {name: self._path(name, value) for name, value in named_places(request).items()}
        if isinstance(request, FitRequest) and request.settings.query_from is not None:
            known = self._path("query_from", request.settings.query_from)
            return replace(request, **places, settings=replace(request.settings, query_from=known))
        return replace(request, **places)

    def _path(self, name, value):
        root = self.models if name == "model" else self.data
        path = f"{root}/{value}"
        if not NAME.fullmatch(value) or not _is_within(root, path, value):
            raise InvalidOption(
                f"{name}: expected a name of letters, digits and . _ - in the service's directory, got another; give "
                "the name of a model, of a data set, or of a new output"
            )
        return path

    def _shown(self, figures):
        return finite({name: self._named(value) for name, value in figures.items() if name not in HIDDEN})

    def _named(self, value):
        """What is told of a job, with names in place of paths."""
        if isinstance(value, dict):
            return {name: self._named(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self._named(one) for one in value]
        if not isinstance(value, str):
            return value
        return without_places(value, self.folders)


def _is_within(root, path, name):
    """Whether a path leads to where a directory has that name, through no link."""
    return on_objects(root) or os.path.realpath(path) == os.path.join(os.path.realpath(str(root)), name)
