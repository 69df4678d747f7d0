"""Hostile clients against two real servers: the effect of each attack on the servers and on honest devices."""
