"""What a server does with more than one machine: the engines beside each other, large catalogues, replicas."""
