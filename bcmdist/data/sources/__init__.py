"""Sources of new partitions: growing data sets, directories of data sets, streams, tables and snapshots."""
