"""What holds for every test: no test fails for being slow, and Hypothesis shows how to repeat a failure."""

import gc

from hypothesis import settings

settings.register_profile("secemb", deadline=None, print_blob=True)
settings.load_profile("secemb")


def pytest_collection_finish() -> None:
    """Keep what is there for the whole run, thousands of tests and all modules, out of every garbage collection."""
    gc.collect()
    gc.freeze()
