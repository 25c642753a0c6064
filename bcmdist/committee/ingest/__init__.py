"""Ingestion: absorb partitions as they arrive, each exactly once."""
