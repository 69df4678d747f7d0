"""The tasks that one server runs: their files, their start and stop, and what becomes of their data."""
