"""What a fit would cost, before it runs: counted operations times rates that are measured where it would run."""
