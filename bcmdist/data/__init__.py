"""Chunk -> partition -> checked rows; knows nothing of Gaussian processes."""
