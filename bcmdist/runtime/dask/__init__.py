"""Tasks on a Dask cluster."""
