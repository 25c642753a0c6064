"""Sources of new partitions: growing data sets, directories of data sets, and streams."""
