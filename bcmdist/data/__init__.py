"""Data sets, their partitions and checked rows (chunk -> partition -> rows), independent of Gaussian processes."""
