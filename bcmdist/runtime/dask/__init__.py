"""The Dask runtime: tasks on a local or remote Dask cluster. No other package of bcmdist imports Dask."""
