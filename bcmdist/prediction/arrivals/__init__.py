"""How well partitions were predicted before they were heard."""
