"""One round on a device: joining, the session, its upload, and the two routes for its messages."""
