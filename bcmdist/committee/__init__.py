"""Message -> belief, and a committee's life: snapshot, passes, ingestion, forgetting, merging."""
