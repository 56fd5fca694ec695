"""The program, run in this process, and distributions that are made up."""

from support.cli_fixtures import *  # noqa: F403 - here, run
from support.plugin_site import *  # noqa: F403 - record, site
