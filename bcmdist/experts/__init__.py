"""Partition -> message."""
