"""The SDK: what a device does to take part in a round."""
