"""Runtimes: run tasks over partitions in this process or on a Dask cluster."""
