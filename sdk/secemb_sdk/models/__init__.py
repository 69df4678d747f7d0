"""What a device trains."""
