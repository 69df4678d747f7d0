"""The tasks of a server's operator: create its directory, pair it with the other server, check it, run it."""
