"""Bytes of a device and round on the wire, and the time of a read."""
