"""Where partitions keep coming from: data sets that grow, directories of them, streams."""
