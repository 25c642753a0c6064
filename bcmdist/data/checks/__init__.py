"""What zarr does not notice: chunks that are missing, damaged, or larger than they say."""
