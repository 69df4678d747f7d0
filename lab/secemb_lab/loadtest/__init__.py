"""Load: many devices against two real services on loopback, and what a session costs each of them."""
