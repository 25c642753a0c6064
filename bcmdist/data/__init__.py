"""Data sets, their partitions and checked rows (chunk -> partition -> rows), without any Gaussian processes."""
