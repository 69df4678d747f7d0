"""Server 0: conducts the rounds, reconstructs the sum of the updates and publishes the next model."""
