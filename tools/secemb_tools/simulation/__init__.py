"""Federated training in one process: the private protocol and a plain sum, from the same seeds."""
