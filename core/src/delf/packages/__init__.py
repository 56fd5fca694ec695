"""Installed packages: delf's own, and an unrelated PyPI project named ``delf``."""
