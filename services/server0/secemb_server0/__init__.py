"""Server 0: it conducts the rounds, reconstructs the sum of the updates and publishes the next model."""
