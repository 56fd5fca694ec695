"""The settings of the plugin."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from delf.settings import PluginSettings, SecretStr


class RunnerSettings(PluginSettings):
    """Where DBOS keeps its workflows, and how workers share tasks."""

    database: SecretStr | None = Field(
        default=None,
        description="Where DBOS keeps its workflows: postgresql://… for many machines, "
        "sqlite:///path for one; by default dbos.sqlite in the user's data folder.",
    )
    lease: float = Field(
        default=30.0,
        ge=1,
        description="Seconds of silence after which a worker's tasks are handed on.",
    )
    global_concurrency: int | None = Field(
        default=None, ge=1, description="Tasks of a queue that run at once, on all machines."
    )
    per_second: float | None = Field(
        default=None, gt=0, description="Tasks of a queue that begin in a second, on all machines."
    )

    def url(self, data_dir: Path) -> str:
        """Where DBOS keeps its workflows, as it wants to have it.

        Args:
            data_dir: The user's data folder; it is made.
        """
        if self.database is not None:
            return self.database.get_secret_value()
        data_dir.mkdir(parents=True, exist_ok=True)
        return f"sqlite:///{data_dir / 'dbos.sqlite'}"
