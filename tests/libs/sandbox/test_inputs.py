"""Input files in a sandbox with its own file system."""

from pathlib import Path

from delf_sandbox.inputs import WORKSPACE, copy_inputs, visible_path
from delf_sandbox_docker.backend import DockerBackend
from delf_sandbox_monty.backend import MontyBackend


def test_path_of_an_input_file_does_not_show_files_of_other_tasks(tmp_path):
    path_of_other_task = str(tmp_path / "ann" / "data.csv")
    path = str(tmp_path / "bob" / "data.csv")
    for backend_class in (DockerBackend, MontyBackend):
        backend = backend_class()
        other_visible_path = backend.visible_path(path_of_other_task)
        # A resumed task gets the same path from the backend of a new process.
        assert backend.visible_path(path) == backend_class().visible_path(path)
        assert Path(backend.visible_path(path)).name == "data.csv"
        assert backend.visible_path(path) != other_visible_path


def test_copied_files_lie_under_their_visible_paths(tmp_path):
    workspace = tmp_path / "workspace"
    paths = [tmp_path / name for name in ("a/data.csv", "b/data.csv", "a/\udcff.txt")]
    for path in (workspace / "x", *paths):
        path.parent.mkdir(exist_ok=True)
    for path in paths:
        path.write_text(path.parent.name)
    copy_inputs(map(str, paths), workspace)
    for path in paths:
        copied = workspace / Path(visible_path(str(path))).relative_to(WORKSPACE)
        assert copied.read_text() == path.parent.name
