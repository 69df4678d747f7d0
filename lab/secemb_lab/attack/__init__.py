"""Hostile clients against two real servers: what each attack changes, and what honest devices notice of it."""
