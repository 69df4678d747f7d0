"""Reports: what is claimed about this project, measured anew."""
