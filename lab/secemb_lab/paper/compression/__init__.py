"""Compressed updates beside SecEmb: what a training comes to with each of them, and how much less is sent."""
