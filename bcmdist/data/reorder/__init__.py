"""Rows in another order: a resumable sort on disk."""
