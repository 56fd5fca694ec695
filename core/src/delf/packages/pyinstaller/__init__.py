"""The location of the PyInstaller hook, for the entry point ``pyinstaller40``."""

from __future__ import annotations

from pathlib import Path


def hook_folders() -> list[str]:
    """Return the folder with ``hook-delf.py``."""
    return [str(Path(__file__).parent)]
