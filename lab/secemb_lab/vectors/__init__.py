"""Known-answer vectors: every derivation and message of the protocol, made by the portable definition."""
