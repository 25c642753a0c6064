"""Checks that zarr does not make: chunks that are missing, damaged, or larger than declared."""
