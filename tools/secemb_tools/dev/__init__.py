"""A local pair for app developers: real servers, helper devices with synthetic data, and everything a program needs."""
