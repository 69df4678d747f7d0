"""A device from the command line: for trying out a pair of servers, and for machines that are no phones."""
