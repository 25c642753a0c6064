"""Rows to learn from, in blocks."""
