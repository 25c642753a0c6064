"""Gridded fields (xarray): fit, predict and fill gaps, by variable names."""
