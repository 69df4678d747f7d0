"""Code shared by the SDK and the servers: mathematics, layouts and messages, without I/O."""
