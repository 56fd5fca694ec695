"""Installed packages: delf's own, and another project's of the same name."""
