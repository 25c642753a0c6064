"""Cost estimates of a fit before it runs: counted operations times rates measured on the runtime."""
