"""Absorbing partitions as they come, once each."""
