"""Jobs over HTTP: requests with names in place of paths, submitted to the service's Dask scheduler.

Clients name models and data sets. They never learn their paths, nor the address of the scheduler: a process that can
connect to the scheduler can run code.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from bcmdist.api.carry_out import check
from bcmdist.api.request_json import from_json
from bcmdist.api.requests import FitRequest, Request, named_places
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
LINES_SHOWN = 8  # last lines of the log shown with the status of a job


@dataclass(frozen=True)
class Work:
    """Directories of jobs, models and data, and the scheduler that runs jobs."""

    jobs: str
    """directory of all jobs"""
    models: str
    data: str | None = None
    """directory of data sets and outputs; None: jobs cannot be submitted"""
    scheduler: str | None = None
    """address of the scheduler; None: jobs cannot be submitted"""
    portion: Portion = ALL
    """portion of the cluster that each job may use"""
    machine: Callable[[str], AbstractContextManager[Any]] = SchedulerMachine

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders of models, data and jobs, which are removed from paths in responses."""
        return tuple(filter(None, (self.models, self.data, self.jobs)))

    def submit(self, asked: dict) -> dict:
        """Submit a request (JSON of `bcmdist.api.requests`, with names in place of paths); return the job's status.

        Raises
        ------
        InvalidRequest, InvalidOption, JobRefused, SchedulerUnreachable, and the errors of `check`
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
        """Return the status of all jobs, oldest first."""
        return [self._shown(one) for one in jobs.listed(self.jobs)]

    def status(self, job: str) -> dict:
        """Return the status of a job; raise `JobNotFound` if there is no such job."""
        return self._shown(jobs.status(open_job(self.jobs, job)))

    def log(self, job: str) -> list[dict]:
        """Return the events of a job, oldest first; raise `JobNotFound` if there is no such job."""
        return self._log(open_job(self.jobs, job))

    def newest(self, most: int, journals: dict[str, Journal]) -> list[dict]:
        """Return the status of the newest jobs, newest first, each with the end of its `log`.

        Parameters
        ----------
        journals : open journals by job id, of which only new events are read; updated in place to the returned jobs
        """
        ids = job_ids(self.jobs)[: -most - 1 : -1]
        newest, kept = [], dict[str, Journal]()
        for job in ids:
            try:
                kept[job] = journals.get(job) or open_job(self.jobs, job)
                kept[job].news()
                newest.append(self._shown(jobs.status(kept[job])) | {"log": self._log(kept[job])[-LINES_SHOWN:]})
            except (BcmdistError, OSError) as error:
                newest.append({"id": job, "state": "unreadable", "error": type(error).__name__, "log": []})
        journals.clear()
        journals.update(kept)
        return newest

    def _log(self, journal):
        return [self._shown(event) for event in journal.events]

    def cancel(self, job: str) -> dict:
        """Cancel a job and return its status."""
        journal = open_job(self.jobs, job)
        jobs.cancel(journal)
        return self._shown(jobs.status(journal))

    def _placed(self, request: Request) -> Request:
        """Return the request with paths in place of names."""
        places = {name: self._path(name, value) for name, value in named_places(request).items()}
        if isinstance(request, FitRequest):
            given = {"query_from": request.settings.query_from, "like": request.settings.like}
            found: dict[str, Any] = {
                name: self._path(name, value) for name, value in given.items() if value is not None
            }
            return replace(request, **places, settings=replace(request.settings, **found))
        return replace(request, **places)

    def _path(self, name, value):
        root = self.models if name in ("model", "model_a", "model_b", "like") else self.data
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
        """Replace paths by names in the figures of a job."""
        if isinstance(value, dict):
            return {name: self._named(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self._named(one) for one in value]
        if not isinstance(value, str):
            return value
        return without_places(value, self.folders)


def _is_within(root, path, name):
    """Whether `path` is the entry `name` of `root` itself, not a symbolic link; always True on object stores."""
    return on_objects(root) or os.path.realpath(path) == os.path.join(os.path.realpath(str(root)), name)
