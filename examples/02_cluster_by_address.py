"""The same fit on a cluster that somebody else has started: only its address is needed.

    dask scheduler                       # on one machine
    dask worker ADDRESS --nthreads 1     # on as many as there are
    python 02_cluster_by_address.py ADDRESS

Data and model must lie where all workers can read them: a shared disk or an object store. Without
an address this script starts a small cluster itself and then uses it by its address.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from distributed import LocalCluster

from bcmdist import GBCM, DaskRuntime, Settings, write_dataset


def fit(address, rows):
    with tempfile.TemporaryDirectory() as shared:
        rng = np.random.default_rng(3)
        X = rng.uniform(-3, 3, (rows, 3))
        write_dataset(
            Path(shared, "train.zarr"), {"X": X, "y": np.cos(X).sum(axis=1) + 0.1 * rng.standard_normal(rows)}
        )
        with DaskRuntime(address) as runtime:
            print(f"{runtime.threads} worker threads, {runtime.allowed_bytes / 1e9:.1f} GB each")
            settings = Settings(query=200, kernel="se")
            gbcm = GBCM.fit(Path(shared, "train.zarr"), settings, model=Path(shared, "model"), runtime=runtime)
        info = gbcm.info()
        print(f"{info['rows']} rows in {info['partitions']} experts, log evidence {info['log_evidence']:.1f}")
        print("seconds by stage", {name: round(value, 2) for name, value in info["seconds_by_stage"].items()})


def main(address, rows):
    if address:
        fit(address, rows)
        return
    with LocalCluster(2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster:
        fit(cluster.scheduler_address, rows)


if __name__ == "__main__":
    addresses = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    main(addresses[0] if addresses else None, 4000 if "--quick" in sys.argv else 40_000)
