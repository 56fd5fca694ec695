"""Tells PyInstaller where the hook is that packs delf; its entry point is ``pyinstaller40``."""

from __future__ import annotations

from pathlib import Path


def hook_folders() -> list[str]:
    """Return the folder with ``hook-delf.py``."""
    return [str(Path(__file__).parent)]
