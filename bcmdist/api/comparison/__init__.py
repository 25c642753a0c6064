"""Comparison of a model with simple baselines and boosted trees at the same rows, and what is said about it."""
