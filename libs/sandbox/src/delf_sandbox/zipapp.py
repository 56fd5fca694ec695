"""Builds the guest's zipapp: one file that any CPython from 3.11 on can run."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import marshal
from functools import cache
from pathlib import Path

import delf.machine.filenames
import delf.values.conversion
import delf.values.encoding

_HERE = Path(__file__).resolve().parent
_CORE_MODULES = (delf.values.conversion, delf.machine.filenames, delf.values.encoding)
_EPOCH = (2020, 1, 1, 0, 0, 0)
_EMPTY_FILES = (
    "delf/__init__.py",
    "delf/machine/__init__.py",
    "delf/values/__init__.py",
    "delf_sandbox/__init__.py",
)


def _read_sources() -> dict[str, str]:
    """Return the source text of each file of the archive, by the file's name in the archive."""
    files: dict[str, str] = dict.fromkeys(_EMPTY_FILES, "")
    for module in _CORE_MODULES:
        name = module.__name__.replace(".", "/")
        files[f"{name}.py"] = Path(str(module.__file__)).read_text("utf-8")
    for path in sorted((_HERE / "guest").glob("*.py")):
        files[f"delf_sandbox/guest/{path.name}"] = path.read_text("utf-8")
    files["__main__.py"] = (
        "import sys\nfrom delf_sandbox.guest.__main__ import main\nmain(sys.argv[1:])\n"
    )
    return files


@cache
def guest_zipapp() -> bytes:
    """Build the archive with the guest's modules.

    The archive is identical for the same sources and Python version. Each module is included as
    source and compiled for the running Python; other versions of Python ignore the compiled form.
    """
    import zipfile  # only needed to build the archive

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, source in _read_sources().items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), source)
            archive.writestr(zipfile.ZipInfo(f"{name}c", _EPOCH), _compile_source(name, source))
    return out.getvalue()


@cache
def guest_digest() -> str:
    """Return the SHA-256 of the guest's sources as hexadecimal text, to identify the version."""
    digest = hashlib.sha256()
    for name, source in sorted(_read_sources().items()):
        digest.update(f"{name}\0{len(source)}\0{source}".encode())
    return digest.hexdigest()


def _compile_source(name: str, source: str) -> bytes:
    """Compile a source to the content of a .pyc file.

    Python never compares the file with its source.
    """
    # optimize=2 leaves out docstrings and assertions, which no process of a guest needs.
    code = compile(source, name, "exec", dont_inherit=True, optimize=2)
    # By PEP 552, these flags mean that the file has a hash of its source, which Python does not
    # check.
    flags = (0b01).to_bytes(4, "little")
    unchecked_hash = bytes(8)
    return importlib.util.MAGIC_NUMBER + flags + unchecked_hash + marshal.dumps(code)
