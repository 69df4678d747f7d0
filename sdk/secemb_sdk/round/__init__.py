"""One round on a device: joining, the session, what it uploads, and the two routes its messages take."""
