"""What an operator does with a server: create its directory, pair it with the other server, check it, run it."""
