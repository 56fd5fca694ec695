"""The routines of a project: files in its folder ``routines``."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from delf.errors import ConfigurationError, DelfError, did_you_mean
from delf.machine.own_files import make_private_folder, write_private
from delf.trust.decisions import Trust, whole_file_items
from delf.trust.folders import entries_of, is_file, read_file
from delf_routines.project_files import FOLDER
from delf_routines.routine import Routine, check_name, is_name

CASES = "cases"
"""The subfolder of recorded runs, with which routines are tested."""
PROPOSED = "proposed"
"""The subfolder of repaired routines that wait for a person's acceptance."""
# The maximum number of bytes of a recorded run.
_MAX_CASE_SIZE = 100_000_000


class RoutineStore:
    """The files of a project's routines. Only files that the user trusts are read."""

    def __init__(self, root: Path, trust: Trust) -> None:
        self.folder = root / FOLDER
        self.root = root
        self.trust = trust

    def names(self) -> list[str]:
        """Return the names of all routines, sorted."""
        paths = (path for path in entries_of(self.folder) if path.suffix == ".py")
        stems = (path.stem for path in paths if is_file(path))
        return sorted(filter(is_name, stems))

    def versions(self) -> list[tuple[str, int, int]]:
        """Return name, modification time and size of each routine's file, to detect changes."""
        paths = (self.path(name) for name in self.names())
        files = ((path.name, path.stat()) for path in paths)
        return [(name, status.st_mtime_ns, status.st_size) for name, status in files]

    def path(self, name: str) -> Path:
        """Return the path of a routine's file."""
        return self.folder / f"{check_name(name)}.py"

    def existing_path(self, name: str) -> Path:
        """Return the path of a routine's file.

        Raises:
            ConfigurationError: If there is no such routine.
        """
        if name not in self.names():
            raise self._missing(name)
        return self.path(name)

    def _missing(self, name: str) -> ConfigurationError:
        names = self.names()
        return ConfigurationError(
            f"there is no routine {name!r}{did_you_mean(name, names)}",
            hint=f"routines: {', '.join(names) or 'none'}; they are in {self.folder}",
        )

    def case_path(self, name: str) -> Path:
        """Return the path of a routine's first test case: the recorded run of its original task."""
        return self.folder / CASES / f"{check_name(name)}.json"

    def find(self, name: str) -> Routine:
        """Return a routine by name.

        Raises:
            ConfigurationError: If the routine is missing or its file is invalid.
            FolderNotTrustedError: If the file is not trusted.
        """
        path = self.path(name)
        content = read_file(path, self.root)
        if content is None:
            raise self._missing(name)
        self.trust.check(self.root, whole_file_items(path, content, self.root))
        return Routine.of_text(name, _decode_file(content, path), str(path))

    def readable(self) -> list[Routine]:
        """Return all routines whose files are valid and trusted."""
        routines: list[Routine] = []
        for name in self.names():
            with contextlib.suppress(DelfError):
                routines.append(self.find(name))
        return routines

    # -- proposals ----------------------------------------------------------------------

    def propose(self, routine: Routine, case: str) -> None:
        """Store a repaired routine as a proposal, which runs only after a person accepts it.

        Args:
            routine: The repaired routine.
            case: The recorded run of the repaired script, as the text of a file.
        """
        self._write(self._proposed(routine.name), routine.text())
        self._write(self._proposed(routine.name).with_suffix(".json"), case)

    def has_proposal(self, name: str) -> bool:
        """Return True if a routine has a proposal, even if its file is invalid."""
        return self._proposed(name).is_file()

    def proposed(self, name: str) -> tuple[Routine, bytes] | None:
        """Return the proposed version of a routine and its test case; None without a proposal.

        The test case is the content of the file with the recorded run from which the proposal was
        made.
        """
        path = self._proposed(name)
        content = read_file(path, self.root)
        case = read_file(path.with_suffix(".json"), self.root, _MAX_CASE_SIZE)
        if content is None or case is None:
            return None
        return Routine.of_text(name, _decode_file(content, path), str(path)), case

    def drop_proposal(self, name: str) -> None:
        """Delete the proposal for a routine, if any."""
        path = self._proposed(name)
        path.unlink(missing_ok=True)
        path.with_suffix(".json").unlink(missing_ok=True)

    def _proposed(self, name: str) -> Path:
        return self.folder / PROPOSED / f"{check_name(name)}.py"

    # -- recorded runs --------------------------------------------------------------------

    def case_paths(self, name: str) -> list[Path]:
        """Return the paths of a routine's recorded runs, that of the original task first."""
        return [self.case_path(name), *self._added_case_paths(name)]

    def _added_case_paths(self, name: str) -> list[Path]:
        return sorted(self.case_path(name).parent.glob(f"{check_name(name)}.*.json"))

    def add_case(self, name: str, run: str, text: str) -> Path:
        """Store another recorded run of a routine, and return its path.

        Args:
            name: The name of the routine.
            run: The id of the run, for the file's name.
            text: The recorded run.
        """
        path = self.case_path(name).with_name(f"{check_name(name)}.{run}.json")
        self._write(path, text)
        return path

    def read_case(self, path: Path) -> bytes:
        """Return the content of a recorded run's file.

        Raises:
            ConfigurationError: If the file is missing.
        """
        content = read_file(path, self.root, _MAX_CASE_SIZE)
        if content is None:
            raise ConfigurationError(f"there is no recorded run at {path}")
        return content

    def keep(self, routine: Routine, recorded_run: str | None = None) -> Path:
        """Save a routine, and trust its file on behalf of the user.

        Args:
            routine: The routine. A routine of the same name is replaced.
            recorded_run: The text of the file with the recorded run, which becomes the only test
                case; None keeps the test cases.

        Raises:
            ConfigurationError: If the file cannot be written; or if :meth:`find` would refuse the
                file, for example because the script has an invisible character.
        """
        path = self.path(routine.name)
        Routine.of_text(routine.name, routine.text(), str(path))  # raises if find() would refuse it
        self._write(path, routine.text())
        self.trust.keep(self.root, whole_file_items(path, path.read_bytes(), self.root))
        if recorded_run is not None:
            for old in self.case_paths(routine.name):  # recorded with the previous script
                old.unlink(missing_ok=True)
            self._write(self.case_path(routine.name), recorded_run)
        return path

    def _write(self, path: Path, text: str) -> None:
        """Write a file atomically.

        Raises:
            ConfigurationError: If the file cannot be written, or its folder links out of the
                project.
        """
        try:
            make_private_folder(path.parent)
            # Checked after mkdir, which follows existing links.
            if not path.parent.resolve().is_relative_to(self.root.resolve()):
                raise ConfigurationError(f"{path.parent} is a link out of {self.root}")
            write_private(path, text.encode())
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error

    def remove(self, name: str) -> None:
        """Delete a routine and its recorded runs.

        Raises:
            ConfigurationError: If there is no such routine.
        """
        self.existing_path(name).unlink()
        for case in self.case_paths(name):
            case.unlink(missing_ok=True)
        self.drop_proposal(name)

    def rename(self, old: str, new: str) -> Path:
        """Rename a routine, and return the path of its new file.

        Raises:
            ConfigurationError: If there is no such routine, the new name is taken, or a file of the
                routine is invalid.
        """
        if new in self.names():
            raise ConfigurationError(f"there is a routine {new!r} already")
        # Read all files first, so that an invalid file leaves the routine under its old name.
        routine = self.find(old)
        old_case = self.case_path(old)
        case = _decode_file(old_case.read_bytes(), old_case) if old_case.is_file() else None
        added_cases_by_suffix = {
            path.name.removeprefix(old): _decode_file(path.read_bytes(), path)
            for path in self._added_case_paths(old)
        }
        renamed_proposal: tuple[Routine, str] | None = None
        proposal = self.proposed(old)
        if proposal is not None:
            proposed_routine, recorded_run = proposal
            run_text = _decode_file(recorded_run, self._proposed(old).with_suffix(".json"))
            renamed_proposal = replace(proposed_routine, name=new), run_text
        path = self.keep(replace(routine, name=new), case)
        for suffix, text in added_cases_by_suffix.items():
            self._write(self.case_path(new).with_name(f"{new}{suffix}"), text)
        if renamed_proposal is not None:
            self.propose(*renamed_proposal)
        self.remove(old)
        return path


def _decode_file(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8") from None
