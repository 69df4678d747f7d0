"""Measurements: the kernel against the AES limit, and the constructions on the paper's catalogues."""
