"""What each page shows, gathered from the ledger and the metrics."""
