"""The C extension, and nothing else; everything about the distribution is in pyproject.toml.

The extension is optional: where it cannot be built, installing succeeds and the NumPy definition does the work.
KERNEL_SANITIZE=1 builds it with AddressSanitizer and UndefinedBehaviorSanitizer instead, and then it must build.
"""

import os
from glob import glob

from setuptools import Extension, setup

SANITIZE = os.environ.get("KERNEL_SANITIZE") == "1"
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
DEBUGGABLE = ["-fno-omit-frame-pointer", "-g", "-O1"]

kernel = Extension(
    "secemb_shared._kernel",
    sources=["shared/native/dpf_kernel.c"],
    depends=sorted(glob("shared/native/*.h")),
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
    extra_compile_args=[*SANITIZERS, *DEBUGGABLE] if SANITIZE else ["-O3", "-g0"],
    extra_link_args=SANITIZERS if SANITIZE else [],
    py_limited_api=True,
    optional=not SANITIZE,
)

setup(ext_modules=[kernel], options={"bdist_wheel": {"py_limited_api": "cp311"}})
