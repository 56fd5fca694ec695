"""Files and permissions as records."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, Final, TypedDict

NATIVE: Final = "application/vnd.google-apps."
FOLDER: Final = f"{NATIVE}folder"
SHORTCUT: Final = f"{NATIVE}shortcut"
FIELDS: Final = (
    "id,name,mimeType,size,modifiedTime,parents,owners/emailAddress,webViewLink,trashed,driveId,"
    "shortcutDetails(targetId,targetMimeType,targetResourceKey)"
)
_MEDIA_TYPES: Final = {
    "folder": FOLDER,
    "shortcut": SHORTCUT,
    "document": f"{NATIVE}document",
    "spreadsheet": f"{NATIVE}spreadsheet",
    "presentation": f"{NATIVE}presentation",
    "pdf": "application/pdf",
    "text": "text/plain",
    "csv": "text/csv",
    "zip": "application/zip",
}
_NAMES_BY_MEDIA_TYPE: Final = {media_type: name for name, media_type in _MEDIA_TYPES.items()}


class FileInfo(TypedDict):
    """The metadata of a file or folder."""

    id: str
    name: str
    kind: str
    type: str
    size: int | None
    modified: dt.datetime | None
    folder: str | None
    owner: str | None
    link: str | None
    trashed: bool


class Found(TypedDict):
    """The files that a search found; ``notice`` is set if there are more."""

    files: list[FileInfo]
    notice: str | None


class Content(TypedDict):
    """A file with its content."""

    name: str
    type: str
    size: int
    data: bytes


class PermissionInfo(TypedDict):
    """The role of a person, a domain or everyone (``anyone``) for a file."""

    id: str
    who: str
    kind: str
    role: str


def file_of(resource: Mapping[str, Any]) -> FileInfo:
    """Convert a file of the Drive API to metadata for scripts."""
    file_media_type = str(resource["mimeType"])
    owners: list[Mapping[str, Any]] = resource.get("owners") or []
    parents: list[str] = resource.get("parents") or []
    modified_time = resource.get("modifiedTime")
    return FileInfo(
        id=str(resource["id"]),
        name=str(resource["name"]),
        kind=_NAMES_BY_MEDIA_TYPE.get(file_media_type, "file"),
        type=file_media_type,
        size=int(resource["size"]) if "size" in resource else None,
        modified=dt.datetime.fromisoformat(str(modified_time)) if modified_time else None,
        folder=parents[0] if parents else None,
        owner=owners[0].get("emailAddress") if owners else None,
        link=resource.get("webViewLink"),
        trashed=bool(resource.get("trashed")),
    )


def leads_to_folder(resource: Mapping[str, Any]) -> bool:
    """Return True if a file of the Drive API is a folder or a shortcut to a folder."""
    shortcut: Mapping[str, Any] = resource.get("shortcutDetails") or {}
    return FOLDER in (resource["mimeType"], shortcut.get("targetMimeType"))


def permission_of(resource: Mapping[str, Any]) -> PermissionInfo:
    """Convert a permission of the Drive API to a record for scripts."""
    kind = str(resource.get("type", ""))
    who = resource.get("emailAddress") or resource.get("domain") or kind
    return PermissionInfo(
        id=str(resource["id"]), who=str(who), kind=kind, role=str(resource.get("role", ""))
    )


def type_of(kind: str) -> str:
    """Return the media type for a short name such as ``pdf``; empty if unknown.

    A name with a slash is a media type already, and is returned unchanged.
    """
    return kind if "/" in kind else _MEDIA_TYPES.get(kind, "")


def kinds() -> str:
    """Return the short names of media types as a comma-separated text, for messages."""
    return ", ".join(_MEDIA_TYPES)


def quote_text(text: str) -> str:
    """Quote a text for Drive's query language."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
