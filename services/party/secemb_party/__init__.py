"""Code shared by both servers: a round without I/O, the ledger, the model store and the HTTP interface."""
