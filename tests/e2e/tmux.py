"""A terminal of tmux: what is on its screen can be waited for and taken."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_SECONDS: Final = 30.0


class Tmux:
    """A terminal of tmux, on a server of its own.

    Args:
        command: What runs on it.
        env: All of its environment.
        here: Where.
        columns: The width.
        prompts: Texts that are waited for as all of the last line.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        here: Path,
        *,
        columns: int,
        prompts: Sequence[str],
    ) -> None:
        self._name = f"delf-{uuid.uuid4().hex[:8]}"
        self._env = dict(env)
        self._prompts = prompts
        new = ["new-session", "-d", "-x", str(columns), "-y", "60", "-c", str(here), *command]
        self._tmux(*new)

    def close(self) -> None:
        """End it and its server."""
        self._tmux("kill-server")

    def send(self, text: str) -> None:
        """Type."""
        self._tmux("send-keys", "-l", text.replace("\n", "\r"))

    def expect(self, wanted: str) -> str:
        """Wait until a text is shown."""
        end = time.monotonic() + _SECONDS
        while not self._is_shown(wanted, shown := self.view()):
            if time.monotonic() > end:
                raise AssertionError(f"{wanted!r} was not shown:\n{shown}")
            time.sleep(0.1)
        return shown

    def view(self) -> str:
        """What is on the screen."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-").rstrip()

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-L", self._name, "-f", "/dev/null", *arguments]
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, check=True)
        return done.stdout

    def _is_shown(self, wanted: str, view: str) -> bool:
        """Whether a screen, whose lines have no blanks at their ends, shows a text."""
        if wanted in self._prompts:
            return view.rpartition("\n")[2].rstrip() == wanted.rstrip()
        shown = "\n".join(line.rstrip() for line in view.split("\n"))
        return "\n".join(line.rstrip() for line in wanted.split("\n")) in shown
