"""Measurements and reports on SecEmb. Not part of the wheel: run `python -m secemb_lab`, or the targets of `make`."""
