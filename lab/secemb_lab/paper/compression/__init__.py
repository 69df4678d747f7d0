"""Compressed updates compared with SecEmb: the accuracy after training with each, and the bytes saved."""
