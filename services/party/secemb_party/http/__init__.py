"""What both servers say over HTTP alike."""
