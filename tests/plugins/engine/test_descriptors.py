"""The number of file descriptors that are left to a process."""

import errno
import os
from pathlib import Path

import pytest

from delf_engine.descriptors import descriptors_left

resource = pytest.importorskip("resource")  # not on Windows


@pytest.mark.parametrize(("error_number", "left"), [(errno.EMFILE, 0), (errno.ENOENT, 100)])
def test_descriptors_left_are_estimated_if_their_folder_is_unreadable(
    monkeypatch, error_number, left
):
    def fail(path):
        raise OSError(error_number, os.strerror(error_number))

    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 200))
    monkeypatch.setattr(Path, "iterdir", fail)
    assert descriptors_left() == left
