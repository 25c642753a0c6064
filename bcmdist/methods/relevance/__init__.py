"""Relevance vectors: which functions of a dictionary the evidence keeps, from sums over all rows."""
