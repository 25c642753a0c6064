"""Reordering of rows: a resumable sort on disk."""
