"""What a task's rounds cost in privacy."""
