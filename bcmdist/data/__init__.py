"""Data sets, their partitions and checked rows: the stages chunk -> partition -> rows. Independent of Gaussian
processes."""
