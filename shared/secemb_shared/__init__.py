"""What the SDK and the servers share: mathematics, layouts and messages, without I/O."""
