"""What both servers do alike: a round without I/O, the ledger, the model store and the HTTP surface."""
