"""Files by their paths: ``Reports/Q3/plan.pdf``, ``Shared drives/Team/Reports``."""

from __future__ import annotations

import re
from typing import Any, Final

from delf.errors import ToolRefusedError
from delf_drive.records import FIELDS, FOLDER, quoted
from delf_google.errors import GoogleError
from delf_google.files import file_id
from delf_google.requests import Request, segment
from delf_google.transport import Transport

ALL_DRIVES: Final = {"supportsAllDrives": True}
IN_ALL_DRIVES: Final = {"supportsAllDrives": True, "includeItemsFromAllDrives": True}
_SHARED: Final = "shared drives"
_ID: Final = re.compile(r"[\w-]{5,200}")


class Places:
    """Finds files by id, address or path.

    Args:
        transport: Where the drive is.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def find(self, given: str) -> dict[str, Any]:
        """A file as the service describes it.

        Raises:
            ToolRefusedError: When there is none, or several are meant.
        """
        text = given.strip()
        if text.startswith("https://"):
            return await self._get(file_id(text))
        if text in ("", "/", "root"):
            return await self._get("root")
        if _ID.fullmatch(text):
            try:
                return await self._get(text)
            except GoogleError as error:
                if error.status != 404:
                    raise
        return await self._walk(text)

    async def folder(self, given: str) -> str:
        """The id of a folder.

        Raises:
            ToolRefusedError: When there is none, or it is a file.
        """
        found = await self.find(given)
        if found["mimeType"] != FOLDER:
            raise ToolRefusedError(f"{given!r} is no folder")
        return str(found["id"])

    async def children(self, folder: str, name: str) -> list[dict[str, Any]]:
        """What a folder holds under a name."""
        query = f"name = {quoted(name)} and {quoted(folder)} in parents and trashed = false"
        page = await self._transport.json(
            Request(
                what=f"look for {name!r}",
                url="drive/v3/files",
                query={"q": query, "fields": f"files({FIELDS})", "pageSize": 10, **IN_ALL_DRIVES},
            )
        )
        return page.get("files") or []

    async def start(self, path: str) -> tuple[dict[str, Any], list[str]]:
        """Where a path begins, and the names that follow."""
        names = [name for name in path.split("/") if name.strip()]
        if names and names[0].lower() == _SHARED:
            if len(names) == 1:
                raise ToolRefusedError("name a shared drive: Shared drives/NAME/…")
            return await self._shared(names[1]), names[2:]
        return {"id": "root", "mimeType": FOLDER}, names

    async def _walk(self, path: str) -> dict[str, Any]:
        found, names = await self.start(path)
        if not names:
            return found
        for depth, name in enumerate(names):
            listed = await self.children(str(found["id"]), name)
            if depth < len(names) - 1:
                listed = [item for item in listed if item["mimeType"] == FOLDER]
            if not listed:
                above = "/".join(names[:depth]) or "the drive"
                raise ToolRefusedError(f"there is no {name!r} in {above}, and no file with this id")
            if len(listed) > 1:
                ids = ", ".join(str(item["id"]) for item in listed)
                raise ToolRefusedError(f"{path!r} is the path of several files; use an id: {ids}")
            found = listed[0]
        return found

    async def _shared(self, name: str) -> dict[str, Any]:
        known: list[str] = []
        pages = self._transport.pages(
            Request(
                what="list shared drives",
                url="drive/v3/drives",
                query={"pageSize": 100, "fields": "nextPageToken,drives(id,name)"},
            ),
            "drives",
        )
        async for drive in pages:
            if drive["name"] == name:
                return {"id": drive["id"], "mimeType": FOLDER, "name": name}
            known.append(str(drive["name"]))
        raise ToolRefusedError(
            f"there is no shared drive {name!r}; shared drives: {', '.join(known) or 'none'}"
        )

    async def _get(self, key: str) -> dict[str, Any]:
        return await self._transport.json(
            Request(
                what="look at a file",
                url=f"drive/v3/files/{segment(key)}",
                query={"fields": FIELDS, **ALL_DRIVES},
            )
        )
