"""Commands for whoever looks after delf on a machine, and a project of it."""
