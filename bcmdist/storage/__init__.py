"""Bytes written once, on a disk or an object store; the commit log and the ledger made of them."""
