"""A local pair for app developers: real servers, helper devices on made-up data, and everything a program needs."""
