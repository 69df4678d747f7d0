"""Load: many devices against two real services on loopback, and the cost of a session for each of them."""
