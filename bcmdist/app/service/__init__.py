"""The HTTP service: predict with models, and let them absorb rows."""
