"""Fixtures that run the program in this process."""

from support.cli_fixtures import *  # noqa: F403 - here, run
