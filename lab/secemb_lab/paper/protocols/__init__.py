"""The protocols that the paper compares SecEmb with, for measurement only, and the tables of bytes and time."""
