"""Where tasks run: a loop here, or a cluster."""
