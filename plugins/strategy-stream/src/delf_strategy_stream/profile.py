"""``Profile``: a short description of the user, learned over conversations; a person reviews it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from pydantic import Field

from delf import Connection, action
from delf.errors import DelfError
from delf.messages import system, user
from delf.protocols.sandbox import Returned
from delf.protocols.strategy import StrategyHost
from delf.settings import LocalPath, PluginSettings

SHOW: Final = "profile.show"
UPDATE: Final = "profile.update"
_LONGEST: Final = 2000
_QUESTION: Final = """\
Below are a description of a user, and a task of theirs with its answer. Does the task tell \
something lasting about the user that helps with later tasks: language, role, places, habits, \
wishes about answers? Then answer with the whole new description, at most 15 short lines of plain \
facts, no secrets, nothing that only this task is about. Otherwise answer with "none"."""


class ProfileSettings(PluginSettings):
    """Where the description is."""

    path: LocalPath = Field(
        default="profile.md", description="A text file; made when it is needed."
    )


class Profile(Connection):
    """A short description of the user."""

    Settings = ProfileSettings
    settings: ProfileSettings

    @action(effect="read")
    async def show(self) -> str:
        """The description; empty while there is none."""
        path = Path(self.settings.path)
        return await asyncio.to_thread(_read, path)

    @action(effect="write")
    async def update(self, text: str) -> str:
        """Replace the description.

        Args:
            text: All of it, in short lines.
        """
        path = Path(self.settings.path)
        await asyncio.to_thread(path.write_text, text[:_LONGEST].strip() + "\n", "utf-8")
        return "kept"


def _read(path: Path) -> str:
    return path.read_text("utf-8")[:_LONGEST] if path.exists() else ""


async def known(host: StrategyHost) -> str:
    """The description as a part of the rules; empty while there is none.

    Args:
        host: Has the connection ``profile`` among its tools.
    """
    answer = await host.call(SHOW, {}, "what is known of the user")
    text = str(answer.value).strip() if isinstance(answer, Returned) else ""
    return f"\n\nAbout the user:\n{text}" if text else ""


async def learn(host: StrategyHost, answer: str) -> None:
    """Propose a new description where the task told something; a person is asked about it.

    Args:
        host: Has the connection ``profile`` among its tools.
        answer: The task's answer.
    """
    shown = await host.call(SHOW, {}, "what is known of the user")
    text = str(shown.value) if isinstance(shown, Returned) else ""
    told = f"Description:\n{text or '(none)'}\n\nTask:\n{host.task}\n\nAnswer:\n{answer}"
    try:
        reply = await host.ask((system(_QUESTION), user(told)))
    except DelfError as error:  # the task has its answer
        await host.warn(f"nothing was learned of the user: {error.message}")
        return
    proposed = reply.text.strip()[:_LONGEST]
    if proposed.strip(' ."').lower() != "none" and proposed != text.strip():
        await host.call(UPDATE, {"text": proposed}, "what this task tells of the user")
