"""Entry points from outside: command line, background jobs and HTTP service."""
