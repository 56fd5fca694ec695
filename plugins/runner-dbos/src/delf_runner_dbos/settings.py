"""The settings of the plugin."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, Field

from delf.errors import ConfigurationError
from delf.machine.own_files import make_private_file, make_private_folder
from delf.settings import PluginSettings, SecretStr, SentTo
from delf_postgresql.login import check_login

PLUGIN: Final = "runner-dbos"


def project_id(folder: str | Path) -> str:
    """Return the id of a project in names of files and schedules, derived from its folder."""
    path = str(Path(folder).resolve())
    return hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:12]


class QueueSettings(BaseModel, extra="forbid"):
    """The limits of a queue."""

    global_concurrency: int | None = Field(
        default=None, ge=1, description="Tasks of a queue that run at once, on all machines."
    )
    per_second: float | None = Field(
        default=None, gt=0, description="Tasks of a queue that begin in a second, on all machines."
    )
    user_concurrency: int = Field(
        default=1, ge=1, description="Tasks of the same user that run at once, on all machines."
    )
    user_per_second: float | None = Field(
        default=None, gt=0, description="Tasks of the same user that begin in a second."
    )
    retries: int = Field(
        default=0,
        ge=0,
        description=(
            "Retries of a task if a model or service was unavailable, unless the task sets "
            "its own number."
        ),
    )
    retry_after: float = Field(
        default=30.0,
        gt=0,
        description="Seconds until the first retry; each later retry waits twice as long.",
    )

    losses: int = Field(
        default=10,
        ge=1,
        description="The number of runners that may die during a task before it counts as failed.",
    )


class RunnerSettings(PluginSettings, QueueSettings):
    """The settings of the plugin: DBOS's database, and the defaults for all queues."""

    database: Annotated[SecretStr | None, SentTo()] = Field(
        default=None,
        description="Where DBOS keeps its workflows: postgresql://… for many machines, "
        "sqlite:///path for one; by default a file for each project in the user's data folder.",
    )
    lease: float = Field(
        default=30.0,
        ge=1,
        description="Seconds of silence after which other runners take over a runner's tasks.",
    )
    queues: dict[str, QueueSettings] = Field(
        default_factory=dict,
        description=(
            "Settings of single queues, by their names; other queues use the settings above."
        ),
    )

    def of(self, queue: str) -> QueueSettings:
        """Return the settings of a queue. Fields that the queue does not set have the defaults."""
        queue_settings = self.queues.get(queue)
        overrides = {} if queue_settings is None else queue_settings.model_dump(exclude_unset=True)
        defaults = {name: getattr(self, name) for name in QueueSettings.model_fields}
        return QueueSettings(**{**defaults, **overrides})

    def url(self, data_dir: Path, folder: Path) -> str:
        """Return the URL of the database for DBOS's workflows.

        Args:
            data_dir: The user's data folder, created if missing.
            folder: The project's folder. Without a configured database, each project has its own
                SQLite file.

        Raises:
            ConfigurationError: If the data folder cannot be written.
            KeyAddressError: If a project's file names a database server to which the user's own
                password would be sent, for example from the environment.
        """
        if self.database is not None:
            url = self.database.get_secret_value()
            check_login(PLUGIN, url, self.source("database"))
            return url
        try:
            make_private_folder(data_dir)
            if not os.access(data_dir, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))  # reported below
        except OSError as error:
            raise ConfigurationError(
                f"the folder {data_dir} cannot be written: {error.strerror}",
                hint="set XDG_DATA_HOME to a folder that can be written, or "
                f'database = "postgresql://…" under [plugins.{PLUGIN}]',
            ) from error
        file = data_dir / f"dbos-{project_id(folder)}.sqlite"
        make_private_file(file)  # DBOS would use the umask's mode
        return f"sqlite:///{file}"
