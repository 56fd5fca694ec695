"""The settings of a project: ``delf.toml``, ``.env``, ``DELF_*`` variables and ``--set``."""

from __future__ import annotations

from delf_project.connections import Connector
from delf_project.prices import Prices, read_prices
from delf_project.project import Project, load_project, project_at

__all__ = ["Connector", "Prices", "Project", "load_project", "project_at", "read_prices"]
