"""What the package uses of dask and distributed beyond their documented interfaces is still there.

`BEYOND` lists all of it. A release of distributed that drops one fails here, with what has to be replaced where; the
job `newest` of `.ci/jobs.sh` runs these tests against the newest versions, pre-releases among them.
"""

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import dask
import dask.system
import distributed
import distributed.client
import distributed.comm
import pytest
from processes import wait_until

import bcmdist.runtime.dask

FOLDER = Path(bcmdist.runtime.dask.__file__).parent
NAME = "canary"  # key of the task whose records are looked at


@dataclass(frozen=True)
class Used:
    """A name of distributed or dask."""

    name: str
    module: str
    """of `bcmdist.runtime.dask`"""
    text: str
    """how that module writes it"""
    there: Callable[[Any], bool]
    """whether it is there, of the fixture `at`"""


class Place(NamedTuple):
    """Where the names are looked up."""

    cluster: distributed.LocalCluster
    client: distributed.Client
    future: distributed.Future

    @property
    def scheduler(self):
        return self.cluster.scheduler

    @property
    def worker(self):
        (worker,) = self.cluster.workers.values()
        return worker

    @property
    def worker_state(self):
        (state,) = self.scheduler.workers.values()
        return state

    @property
    def task(self):
        return self.scheduler.tasks[NAME]


def has(owner, name):
    return lambda at: hasattr(getattr(at, owner), name)


def exported(module, name):
    return lambda at: hasattr(module, name)


def configured(key):
    return lambda at: dask.config.get(key, default=at) is not at


BEYOND = [
    # Errors and connections.
    Used(
        "distributed.client.ClosedClientError",
        "heartbeat",
        "ClosedClientError",
        exported(distributed.client, "ClosedClientError"),
    ),
    Used(
        "distributed.comm.CommClosedError",
        "heartbeat",
        "CommClosedError",
        exported(distributed.comm, "CommClosedError"),
    ),
    Used("distributed.comm.connect", "connection", "connect as open_comm", exported(distributed.comm, "connect")),
    Used("distributed.comm.parse_address", "security", "parse_address", exported(distributed.comm, "parse_address")),
    Used(
        "distributed.comm.parse_host_port", "security", "parse_host_port", exported(distributed.comm, "parse_host_port")
    ),
    Used(
        "Security.get_connection_args",
        "security",
        ".get_connection_args(",
        exported(distributed.Security, "get_connection_args"),
    ),
    Used(
        "Security.get_tls_config_for_role",
        "security",
        ".get_tls_config_for_role(",
        exported(distributed.Security, "get_tls_config_for_role"),
    ),
    Used(
        "KilledWorker.last_worker",
        "one_by_one",
        "error.last_worker.address",
        lambda at: hasattr(distributed.KilledWorker("key", at.worker_state, 1), "last_worker"),
    ),
    Used(
        'the text "scheduler-connection-lost"',
        "heartbeat",
        '"scheduler-connection-lost"',
        lambda at: "scheduler-connection-lost" in inspect.getsource(distributed.client),
    ),
    # The client.
    Used(
        "Client.run_on_scheduler(..., callback_timeout=)",
        "heartbeat",
        "callback_timeout=",
        lambda at: at.client.run_on_scheduler(str, 7, callback_timeout=30) == "7",
    ),
    Used(
        "Client.loop.asyncio_loop",
        "heartbeat",
        ".loop.asyncio_loop",
        lambda at: hasattr(at.client.loop, "asyncio_loop"),
    ),
    Used(
        "Client.scheduler.address",
        "existing",
        '"address"',
        lambda at: at.client.scheduler.address == at.scheduler.address,
    ),
    Used("Future.release", "flights", "future.release()", has("future", "release")),
    # The scheduler, in plugins and functions that run in its process.
    Used(
        "Scheduler.id",
        "allotment",
        "dask_scheduler.id",
        lambda at: at.scheduler.id == at.client.scheduler_info(n_workers=0)["id"],
    ),
    Used(
        "Scheduler.workers, WorkerState.nthreads",
        "allotment",
        ".nthreads",
        lambda at: [w.nthreads for w in at.scheduler.workers.values()] == [1],
    ),
    Used(
        "Scheduler.tasks, TaskState.processing_on, TaskState.who_has",
        "flights",
        "task.processing_on",
        lambda at: at.task.processing_on is None and at.task.who_has == {at.worker_state},
    ),
    Used("WorkerState.processing", "flights", "worker.processing", has("worker_state", "processing")),
    Used(
        "TaskState.suspicious, Scheduler.allowed_failures",
        "one_by_one",
        ".suspicious = scheduler.allowed_failures",
        lambda at: at.task.suspicious == 0 and at.scheduler.allowed_failures > 0,
    ),
    Used("Scheduler.remove_plugin", "one_by_one", "scheduler.remove_plugin(", has("scheduler", "remove_plugin")),
    Used("Scheduler.security", "security", "dask_scheduler.security", has("scheduler", "security")),
    Used(
        "events remove-worker of the topic all",
        "one_by_one",
        '"remove-worker"',
        lambda at: [one.keys() >= {"worker", "expected"} for one in removals(at.client)] == [True],
    ),
    # The worker.
    Used('Worker.executors["default"]', "pinned", '.executors["default"]', lambda at: "default" in at.worker.executors),
    Used(
        "Worker.get_current_task",
        "summaries",
        ".get_current_task()",
        lambda at: at.client.submit(current_task, key="current").result(60) == "current",
    ),
    Used("Worker.log_event", "summaries", ".log_event(", has("worker", "log_event")),
    # Clusters and configuration.
    Used(
        "SpecCluster.plan, SpecCluster.observed",
        "existing",
        '("plan", "observed")',
        lambda at: at.cluster.plan == at.cluster.observed and len(at.cluster.plan) == 1,
    ),
    Used("dask.system.CPU_COUNT", "connection", "CPU_COUNT", exported(dask.system, "CPU_COUNT")),
    *(
        Used(f"the setting {key}", "connection", f'"{key}"', configured(key))
        for key in (
            "distributed.admin.tick.interval",
            "distributed.deploy.lost-worker-timeout",
            "distributed.worker.multiprocessing-method",
            "distributed.worker.profile.enabled",
        )
    ),
]


def current_task():
    return distributed.get_worker().get_current_task()


@pytest.fixture(scope="module")
def at():
    """A cluster in this process with one of its two workers left, and a task that it has done."""
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        cluster.scale(1)
        wait_until(lambda: len(client.nthreads()) == 1, "the end of a worker")
        future = client.submit(str, 7, key=NAME)
        assert future.result(60) == "7"
        yield Place(cluster, client, future)


def removals(client):
    return [event for _, event in client.get_events("all") if event.get("action") == "remove-worker"]


@pytest.mark.parametrize("used", BEYOND, ids=[used.name for used in BEYOND])
def test_what_is_used_beyond_the_documented_is_there(at, used):
    try:
        there = used.there(at)
    except (AttributeError, KeyError, TypeError):
        there = False
    assert there, (
        f"distributed {distributed.__version__} has no {used.name} as bcmdist.runtime.dask.{used.module} uses it: "
        "replace it there, or require an older version in pyproject.toml"
    )


def test_each_is_used_where_the_list_has_it():
    unused = [used.name for used in BEYOND if used.text not in (FOLDER / f"{used.module}.py").read_text()]
    assert unused == []


OTHERS = ("scheduler", "dask_scheduler", "worker", "client")  # names of objects of distributed


def beyond(path):
    """What a file takes from submodules of others, what it assigns to objects of others, and private names; as text."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("dask.", "distributed.")):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if node.attr.startswith("_") and not node.attr.startswith("__") and owner not in ("self", "cls", "sys"):
                yield ast.unparse(node)
            if isinstance(node.ctx, ast.Store) and owner.startswith(
                ("scheduler", "dask_scheduler", "worker", "client")
            ):
                yield f".{node.attr} ="
            if owner.endswith((".scheduler", "dask_scheduler")) and node.attr not in ("tasks", "workers"):
                yield ast.unparse(node)
        elif isinstance(node, ast.Constant) and str(node.value).startswith("distributed."):
            yield f'"{node.value}"'


def test_the_list_is_complete():
    texts = "\n".join(f"{used.module}: {used.text} {used.name}" for used in BEYOND)
    found = {(path.stem, text) for path in sorted(FOLDER.glob("*.py")) for text in beyond(path)}
    assert sorted(f"{module}: {text}" for module, text in found if text not in texts) == []
    assert ("one_by_one", ".suspicious =") in found
