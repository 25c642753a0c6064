"""The log evidence and its gradient, of separate blocks of rows and of a whole committee."""
