"""Fleets of up to a million devices in virtual time, against server 0's own conductor, admission and pace."""
