"""Storage of models on a disk or an object store: write-once bytes, the commit log and the ledger."""
