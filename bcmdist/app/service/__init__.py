"""The service: predictions, and rows to hear, over HTTP."""
