"""The model shared by all experts: kernel, likelihood, mean, units, scaling and shared variables."""
