"""Hearing partitions as they come, once each."""
