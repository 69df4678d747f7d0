"""Torch is an extra: the base never imports it, and says what to install where it is needed and missing."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "own_model.py"
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None\n"  # what an import then finds is: nothing


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "module", ["secemb_sdk", "secemb_sdk.round.session", "secemb_sdk.models", "secemb_sdk.models.update"]
)
def test_the_base_does_not_import_torch(module: str) -> None:
    done = python(f"import sys, {module}; sys.exit('torch' in sys.modules)")
    assert done.returncode == 0, done.stderr


def test_this_would_be_noticed() -> None:
    assert python("import sys, secemb_sdk.models.torch; sys.exit('torch' in sys.modules)").returncode == 1


def test_a_device_trains_matrix_factorisation_without_torch() -> None:
    done = python(
        WITHOUT_TORCH + "import numpy as np\n"
        "from secemb_sdk.models import MatrixFactorisation, PrivateState, Ratings, learn\n"
        "model, random = MatrixFactorisation(), np.random.default_rng(1)\n"
        "ratings = Ratings(np.arange(3), np.array([1, 3, 5], np.float32))\n"
        "rows, dense = np.ones((3, 65), np.float32), np.zeros(0, np.float32)\n"
        "print(learn(model, PrivateState.begin(model, random), rows, dense, ratings, rate=0.025)[0].shape)\n"
    )
    assert done.stdout == "(3, 65)\n", done.stderr


def test_a_torch_model_without_torch_says_what_to_install() -> None:
    done = python(WITHOUT_TORCH + "import secemb_sdk.models.torch")
    assert done.returncode == 1
    assert "TorchMissingError" in done.stderr
    assert "pip install secemb[train]" in done.stderr


def test_an_app_brings_its_own_model_in_thirty_lines() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=False)
    assert done.stdout == "to add: (3, 9) (64,) kept here: (8,)\n", done.stderr
    lines = EXAMPLE.read_text(encoding="utf-8").split('if __name__ == "__main__"')[0].splitlines()
    assert len([line for line in lines if line]) <= 30
