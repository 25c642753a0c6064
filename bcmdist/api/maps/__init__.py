"""Gridded fields as xarray has them: fitted, predicted and filled in by the names of their variables."""
