"""A Dask cluster whose workers are SLURM jobs, for as long as this script runs.

    python cluster.py --workers 4 --memory 8GB --address-file address

It runs on a login node, or in a job of its own; workers of `--host` must be reached from there, and it from them.
"""

import argparse
import signal
import sys
import threading
from pathlib import Path

from dask_jobqueue import SLURMCluster

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--workers", type=int, default=2, help="Jobs, of one core and one worker each.")
parser.add_argument("--memory", default="4GB", help="Of each job.")
parser.add_argument("--walltime", default="01:00:00", help="Of each job; lost workers are replaced.")
parser.add_argument("--queue", help="SLURM partition.")
parser.add_argument("--host", default="127.0.0.1", help="Address of this machine that the nodes reach.")
parser.add_argument("--worker-host", help="Address that workers listen on, where it is not found by itself.")
parser.add_argument("--logs", default=".", help="Directory for the jobs' logs.")
parser.add_argument("--address-file", required=True, help="Where to write the scheduler's address.")
asked = parser.parse_args()

ended = threading.Event()
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: ended.set())

ONE_THREAD = [f"export {name}=1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")]
with SLURMCluster(
    cores=1,
    processes=1,
    memory=asked.memory,
    walltime=asked.walltime,
    queue=asked.queue,
    python=sys.executable,
    job_script_prologue=ONE_THREAD,  # experts run side by side, one on each core
    log_directory=asked.logs,
    local_directory=asked.logs,
    scheduler_options={"host": asked.host, "dashboard_address": "127.0.0.1:0"},
    worker_extra_args=["--host", asked.worker_host] if asked.worker_host else [],
) as cluster:
    cluster.adapt(minimum_jobs=asked.workers, maximum_jobs=asked.workers)  # jobs that end are submitted again
    Path(asked.address_file).write_text(cluster.scheduler_address)
    ended.wait()
