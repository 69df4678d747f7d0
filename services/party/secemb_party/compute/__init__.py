"""What the service asks of the kernel, and the engines that carry it out."""
