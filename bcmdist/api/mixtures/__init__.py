"""Mixtures of committees: changes of all members by one commit, ingestion, merging and copying."""
