"""Reports that measure what the documentation claims."""
