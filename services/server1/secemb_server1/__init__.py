"""Server 1: it answers devices and server 0, and decides nothing."""
