from pathlib import Path

import pytest

from delf_filesystem import Filesystem, beneath


@pytest.fixture(params=["kernel", "walk"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The way in which paths are resolved: by openat2, or part by part."""
    if request.param == "walk":
        monkeypatch.setattr(beneath, "has_openat2", lambda: False)
    elif not beneath.has_openat2():
        pytest.skip("this kernel has no openat2")
    return request.param


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    (folder / "deep/er").mkdir(parents=True)
    (folder / "plan.md").write_text("one\ntwo\nthree\n")
    (folder / "deep/er/list.txt").write_text("eggs\nTwo lamps\n")
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


@pytest.fixture
def files(notes: Path, out: Path) -> Filesystem:
    return Filesystem(roots={"notes": str(notes), "out": {"root": str(out), "mode": "rw"}})
