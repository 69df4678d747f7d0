"""The content of each page, from the ledger and the metrics."""
