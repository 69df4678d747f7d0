"""What the SDK and the servers agree on: mathematics, layouts and messages, without any I/O."""
