"""The protocols that the paper compares with, for measurement only, and the tables about bytes and time."""
