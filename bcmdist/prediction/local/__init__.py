"""The committee and the rows around each new point."""
