"""The service: predictions, and rows to absorb, over HTTP."""
