"""Commands for administrators of delf on a machine, and of a project."""
