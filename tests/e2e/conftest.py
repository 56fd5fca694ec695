from support.fixtures import *  # noqa: F403 - databases
