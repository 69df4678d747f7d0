"""The home directory of a device: what is kept in it, how its files are written, and how they are encrypted."""
