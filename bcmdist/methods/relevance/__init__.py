"""Relevance vector machines: selection of functions from a dictionary by the evidence, from sums over all rows."""
