"""What holds for every test: no test fails for being slow, and Hypothesis shows how to repeat a failure."""

from hypothesis import settings

settings.register_profile("secemb", deadline=None, print_blob=True)
settings.load_profile("secemb")
