"""Files by their paths: ``Reports/Q3/plan.pdf``, ``Shared drives/Team/Reports``."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from delf.errors import ToolRefusedError
from delf_drive.records import FIELDS, FOLDER, SHORTCUT, leads_to_folder, quote_text
from delf_google.errors import GoogleError
from delf_google.files import file_id
from delf_google.requests import Request, segment
from delf_google.transport import Transport

ALL_DRIVES: Final = {"supportsAllDrives": True}
IN_ALL_DRIVES: Final = {
    "supportsAllDrives": True,
    "includeItemsFromAllDrives": True,
    "corpora": "allDrives",  # by default, only opened files of shared drives are found
}
_RESOURCE_KEYS_HEADER: Final = "X-Goog-Drive-Resource-Keys"
_MAX_KEYS: Final = 10
_SHARED_DRIVES: Final = "shared drives"
_NOT_FOUND: Final = 404
_ID: Final = re.compile(r"[\w-]{5,200}")


class PathResolver:
    """Finds files of Drive by id, URL or path.

    Args:
        transport: The HTTP client of the connection.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def find(self, reference: str, *, follow: bool = True) -> dict[str, Any]:
        """Return a file as JSON data of the Drive API.

        Args:
            reference: The id, URL or path.
            follow: Whether to return the target of a shortcut instead of the shortcut.

        Raises:
            ToolRefusedError: If no file or more than one file matches, or the reference is blank.
        """
        is_root = reference.strip() == "/"
        names_nothing = not reference.strip(" /")  # such as "" or "//"
        if names_nothing and not is_root:
            # A script's mistake must not delete or share the whole drive.
            raise ToolRefusedError("no file is named; the drive itself is 'root'")
        record = await self._find(reference)
        return await self.target(record) if follow else record

    async def target(self, file: dict[str, Any]) -> dict[str, Any]:
        """Return the target of a shortcut; return any other file unchanged.

        Raises:
            ToolRefusedError: If the target does not exist.
        """
        if file["mimeType"] != SHORTCUT:
            return file
        shortcut: dict[str, str] = file.get("shortcutDetails") or {}
        key = shortcut.get("targetId", "")
        self._remember_resource_key(key, shortcut.get("targetResourceKey"))
        try:
            return await self._get(key)
        except GoogleError as error:
            if error.status != _NOT_FOUND:
                raise
            raise ToolRefusedError(
                f"{file['name']!r} is a shortcut to a file that is not there (any more)"
            ) from None

    def _remember_resource_key(self, file_id: str, resource_key: str | None) -> None:
        """Make all further requests send the resource key of a shared file.

        Google requires the key for some files. A single header of each request has the newest
        ``_MAX_KEYS`` keys, as pairs of file id and resource key.
        """
        if not resource_key:
            return
        if not (_ID.fullmatch(file_id) and _ID.fullmatch(resource_key)):
            return
        header = self._transport.headers.get(_RESOURCE_KEYS_HEADER, "")
        pairs = [pair for pair in header.split(",") if pair]
        pairs = [pair for pair in pairs if not pair.startswith(f"{file_id}/")]
        pairs.append(f"{file_id}/{resource_key}")
        self._transport.headers[_RESOURCE_KEYS_HEADER] = ",".join(pairs[-_MAX_KEYS:])

    async def _find(self, reference: str) -> dict[str, Any]:
        """Return the file that a URL, an id or a path names; the file may be a shortcut."""
        text = reference.strip()
        if text.startswith("https://"):
            key = file_id(text)
            resource_key = parse_qs(urlsplit(text).query).get("resourcekey")
            self._remember_resource_key(key, resource_key[0] if resource_key else None)
            return await self._get(key)
        if text in ("/", "root"):
            return await self._get("root")
        if _ID.fullmatch(text):
            try:
                return await self._get(text)
            except GoogleError as error:
                if error.status != _NOT_FOUND:
                    raise
        # A file's name may look like an id.
        return await self._find_by_path(text)

    async def folder(self, reference: str) -> str:
        """Return the id of a folder.

        Args:
            reference: The id, URL or path; blank for the root of the drive.

        Raises:
            ToolRefusedError: If there is no such folder, or the path names a file.
        """
        record = await self.find(reference if reference.strip(" /") else "root")
        if record["mimeType"] != FOLDER:
            raise ToolRefusedError(f"{reference!r} is not a folder")
        return str(record["id"])

    async def children(self, folder: str, name: str) -> list[dict[str, Any]]:
        """Return up to ten files and folders in a folder that have a certain name."""
        query = f"name = {quote_text(name)} and {quote_text(folder)} in parents and trashed = false"
        page = await self._transport.json(
            Request(
                f"look for {name!r}",
                "GET",
                "drive/v3/files",
                query={"q": query, "fields": f"files({FIELDS})", "pageSize": 10, **IN_ALL_DRIVES},
            )
        )
        return page.get("files") or []

    async def split_path(self, path: str) -> tuple[dict[str, Any], list[str]]:
        """Return the folder at which a path starts, and the names below that folder.

        Paths start at the user's root folder, or at a shared drive (``Shared drives/NAME/…``).
        """
        names = [name for name in path.split("/") if name.strip()]
        if names and names[0].lower() == _SHARED_DRIVES:
            if len(names) == 1:
                raise ToolRefusedError("name a shared drive: Shared drives/NAME/…")
            return await self._shared_drive(names[1]), names[2:]
        return {"id": "root", "mimeType": FOLDER}, names

    async def _find_by_path(self, path: str) -> dict[str, Any]:
        """Return the file at a path; follow shortcuts to folders, but not a shortcut at the end."""
        record, names = await self.split_path(path)
        for depth, name in enumerate(names):
            matches = await self.children(str(record["id"]), name)
            is_last = depth == len(names) - 1
            if not is_last:
                matches = [await self.target(item) for item in matches if leads_to_folder(item)]
            if not matches:
                above = "/".join(names[:depth]) or "the drive"
                raise ToolRefusedError(f"there is no {name!r} in {above}, and no file with this id")
            if len(matches) > 1:
                ids = ", ".join(str(item["id"]) for item in matches)
                raise ToolRefusedError(f"{path!r} is the path of several files; use an id: {ids}")
            record = matches[0]
        return record

    async def _shared_drive(self, name: str) -> dict[str, Any]:
        """Return the shared drive with a name, as a folder."""
        names: list[str] = []
        pages = self._transport.pages(
            Request(
                "list shared drives",
                "GET",
                "drive/v3/drives",
                query={"pageSize": 100, "fields": "nextPageToken,drives(id,name)"},
            ),
            "drives",
        )
        async for drive in pages:
            if drive["name"] == name:
                return {"id": drive["id"], "mimeType": FOLDER, "name": name}
            names.append(str(drive["name"]))
        raise ToolRefusedError(
            f"there is no shared drive {name!r}; shared drives: {', '.join(names) or 'none'}"
        )

    async def _get(self, key: str) -> dict[str, Any]:
        return await self._transport.json(
            Request(
                "look at a file",
                "GET",
                f"drive/v3/files/{segment(key)}",
                query={"fields": FIELDS, **ALL_DRIVES},
            )
        )
