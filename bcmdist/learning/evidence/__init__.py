"""The evidence and its gradient: of blocks of rows on their own, and of a whole committee."""
