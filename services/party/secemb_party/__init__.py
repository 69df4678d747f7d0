"""What both servers share: a round without I/O, the ledger, the model store and the HTTP interface."""
