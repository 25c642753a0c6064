"""Message -> posterior, and what happens to a committee: snapshots, passes, ingestion, forgetting, merging."""
