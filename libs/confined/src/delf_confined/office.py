"""Normalisation of Office archives for libraries; call in a confined child.

Office accepts part names in any case and with backslashes, and the strict variant of its formats.
Libraries expect exact names and transitional namespaces, so the archive is rewritten in memory.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Final
from urllib.parse import unquote

from delf.errors import ToolExecutionError

_MAX_UNPACKED_BYTES: Final = 256 * 1024 * 1024
_STRICT_NAMESPACE: Final = re.compile(rb"http://purl\.oclc\.org/ooxml/([A-Za-z]+)/([A-Za-z]+)")
_REFERENCE: Final = re.compile(r"""\b(?:Target|PartName)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_CONTENT_TYPES: Final = "[Content_Types].xml"
_RELS_OF_PACKAGE: Final = "_rels/.rels"
_KNOWN: Final = (_CONTENT_TYPES, _RELS_OF_PACKAGE, "docProps/core.xml", "docProps/app.xml")
_XML_SUFFIXES: Final = (".xml", ".rels")
_OLE_SIGNATURE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED_PART_NAME: Final = "EncryptedPackage".encode("utf-16-le")
_HEAD_BYTES: Final = 1024 * 1024


def is_locked(path: str | Path) -> bool:
    """Return True if a file has the format of Office documents that are locked with a password.

    Old Office documents have the same container format, but no part ``EncryptedPackage``.
    """
    with Path(path).open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return head.startswith(_OLE_SIGNATURE) and _ENCRYPTED_PART_NAME in head


def with_usual_part_names(source: str | IO[bytes]) -> str | IO[bytes]:
    """Return an Office document with the part names and XML namespaces that Office writes.

    The namespaces are those of OOXML's transitional variant. A document that already has these
    names and namespaces is not copied.

    Args:
        source: The path of the document, or a file object with its content.

    Returns:
        The source itself, or a file object with a corrected copy.

    Raises:
        ToolExecutionError: If the document is too large to rewrite.
        zipfile.BadZipFile: If the document is not a zip archive.
    """
    with zipfile.ZipFile(source) as archive:
        names = archive.namelist()
        usual_names = _usual_names(archive)
        has_usual_names = all(name == usual_names[name] for name in names)
        if not has_usual_names or _is_strict(archive):
            return _rewrite_archive(archive, usual_names)
    if not isinstance(source, str):
        source.seek(0)  # reading the archive has moved the position
    return source


def _is_strict(archive: zipfile.ZipFile) -> bool:
    """Return True if an archive has the namespaces of the strict variant of OOXML."""
    if _RELS_OF_PACKAGE not in archive.namelist():
        return False
    return _STRICT_NAMESPACE.search(archive.read(_RELS_OF_PACKAGE)) is not None


def _usual_names(archive: zipfile.ZipFile) -> dict[str, str]:
    r"""Return a mapping from the name of each part in the archive to its usual name.

    For example, the usual name of the part ``WORD\document.xml`` is ``word/document.xml``.
    """
    names = archive.namelist()
    if sum(item.file_size for item in archive.infolist()) > _MAX_UNPACKED_BYTES:
        return {name: name for name in names}  # the archive is too large to be read
    paths = {name: name.replace("\\", "/").lstrip("/") for name in names}
    spellings: dict[str, str] = {}  # such as "docprops/app.xml": "docProps/app.xml"
    for spelling in (*_KNOWN, *_referenced_names(archive, paths)):
        spellings.setdefault(_normalise_name(spelling), spelling)
    usual_names: dict[str, str] = {}
    for name, path in paths.items():
        usual_path = spellings.get(_normalise_name(path), path)
        usual_names[name] = _usual_rels_path(usual_path, spellings)
    return usual_names


def _referenced_names(archive: zipfile.ZipFile, paths: Mapping[str, str]) -> Iterator[str]:
    """Yield the names that parts of an archive use for other parts, such as ``word/styles.xml``.

    Args:
        archive: The archive.
        paths: The path of each part, by the part's name in the archive.
    """
    for name, path in paths.items():
        lowered_path = path.lower()
        is_content_types = lowered_path == _CONTENT_TYPES.lower()
        if not is_content_types and not lowered_path.endswith(".rels"):
            continue  # only these parts refer to others
        # The part word/_rels/document.xml.rels names other parts relative to the folder "word/".
        # The content types are relative to the top folder "".
        folder, _, _ = lowered_path.rpartition("_rels/")
        text = archive.read(name).decode("utf-8", "replace")
        for target in _references(text):
            full_path = target.lstrip("/") if target.startswith("/") else folder + target
            yield _resolve_path(full_path.replace("\\", "/").split("/"))


def _usual_rels_path(path: str, spellings: Mapping[str, str]) -> str:
    """Return the usual spelling of the path of a ``.rels`` part, which belongs to another part.

    For ``Word/_Rels/Styles.xml.rels``, return ``word/_rels/styles.xml.rels`` if the other part is
    ``word/styles.xml``. Any other path is returned unchanged.

    Args:
        path: The path of a part.
        spellings: The usual names of all parts, by normalised name.
    """
    rels_start = path.lower().rfind("_rels/")
    if rels_start < 0:
        return path
    file_name = path[rels_start + len("_rels/") :]
    if not file_name.lower().endswith(".rels"):
        return path
    if file_name.lower() == ".rels":  # belongs to the whole package
        return path
    part = path[:rels_start] + file_name[: -len(".rels")]  # such as Word/Styles.xml
    usual_part = spellings.get(_normalise_name(part), part)
    folder, _, part_file = usual_part.rpartition("/")
    return f"{folder}/_rels/{part_file}.rels".lstrip("/")  # the folder may be empty


def _normalise_name(name: str) -> str:
    """Return a part's name in lower case and without percent escapes, to compare spellings."""
    return unquote(name).lower()


def _references(text: str) -> Iterable[str]:
    """Return the values of ``Target`` and ``PartName`` in an XML text, in any kind of quotes."""
    return (
        in_double_quotes or in_single_quotes
        for in_double_quotes, in_single_quotes in _REFERENCE.findall(text)
    )


def _resolve_path(steps: Iterable[str]) -> str:
    """Join path segments and resolve ``..``: ``word``, ``..`` and ``a.xml`` give ``a.xml``."""
    parts: list[str] = []
    for step in steps:
        if step == "..":
            del parts[-1:]  # no error if there is no parent folder
        elif step not in ("", "."):
            parts.append(step)
    return "/".join(parts)


def _rewrite_archive(archive: zipfile.ZipFile, usual_names: dict[str, str]) -> IO[bytes]:
    """Return a copy of an OOXML archive in the form that readers expect.

    Parts are renamed, and namespaces of the strict variant are replaced by the transitional ones.

    Args:
        archive: The archive.
        usual_names: The new name of each part, by the name in the archive.
    """
    if sum(item.file_size for item in archive.infolist()) > _MAX_UNPACKED_BYTES:
        raise ToolExecutionError(
            f"the document has more than {_MAX_UNPACKED_BYTES:,} bytes unpacked"
        )
    rewritten = io.BytesIO()
    done_names: set[str] = set()
    with zipfile.ZipFile(rewritten, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as copy:
        for name, usual_name in usual_names.items():
            if usual_name in done_names or usual_name.endswith("/"):
                continue  # another spelling of a copied part, or a folder
            done_names.add(usual_name)
            data = archive.read(name)
            lower = usual_name.lower()
            if lower.endswith(_XML_SUFFIXES):
                data = _STRICT_NAMESPACE.sub(_transitional_namespace, data)
                if lower == _CONTENT_TYPES.lower() or lower.endswith(".rels"):
                    data = data.replace(b"\\", b"/")  # references with backslashes, as on Windows
            copy.writestr(usual_name, data)
    rewritten.seek(0)
    return rewritten


def _transitional_namespace(namespace: re.Match[bytes]) -> bytes:
    """Convert a strict OOXML namespace to the transitional form, which libraries can read."""
    return b"http://schemas.openxmlformats.org/%s/2006/%s" % (namespace[1], namespace[2])
