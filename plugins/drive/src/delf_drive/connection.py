"""``Drive``: files and folders that a script can find, read, store and share."""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator

from delf import CallContext, action
from delf.errors import ToolRefusedError
from delf.protocols.connection import Allowed, ProposedCall
from delf.types import Trust
from delf_drive.paths import ALL_DRIVES, IN_ALL_DRIVES, PathResolver
from delf_drive.records import (
    FIELDS,
    FOLDER,
    NATIVE,
    Content,
    FileInfo,
    Found,
    PermissionInfo,
    file_of,
    kinds,
    leads_to_folder,
    permission_of,
    quote_text,
    type_of,
)
from delf_google.addresses import address
from delf_google.connection import GoogleConnection
from delf_google.errors import LostAnswerError
from delf_google.files import read_task_file
from delf_google.requests import Request, segment, utf8
from delf_google.uploads import upload

_FILES: Final = "drive/v3/files"
_MAX_SEARCH_RESULTS: Final = 1000
# The trust level of each field of a file: strangers can share files under any name.
_TRUST: Final[Mapping[str, Trust]] = {"name": "outside", "owner": "outside", "*": "own"}
_PERMISSION: Final[Mapping[str, Trust]] = {"who": "outside", "*": "own"}
_EXPORT_TYPES: Final = {
    f"{NATIVE}document": "text/markdown",
    f"{NATIVE}spreadsheet": "text/csv",
    f"{NATIVE}presentation": "text/plain",
}
_QUOTED: Final = re.compile(r"'(?:[^'\\]|\\.)*'", re.DOTALL)
_ROOT_NAMES: Final = ("", "/", "root")
# The actions that change or remove an existing file.
_CHANGING_ACTIONS: Final = frozenset({"update", "trash", "delete"})
# The media types of the contents that Drive converts to files of its own formats.
_UPLOAD_TYPES: Final = {f"{NATIVE}document": "text/markdown", f"{NATIVE}spreadsheet": "text/csv"}


def _recipient(who: str) -> str:
    """Validate a recipient: ``anyone``, ``domain:example.com``, or one mail address."""
    who = who.strip()
    if who == "anyone" or who.startswith("domain:"):
        return who
    return address(who)


Recipient = Annotated[str, AfterValidator(_recipient)]


def _guess_media_type(name: str, content: str | bytes) -> str:
    """Guess the media type of a file by its name, or else by whether the content is text."""
    default_type = "text/plain" if isinstance(content, str) else "application/octet-stream"
    return mimetypes.guess_type(name)[0] or default_type


@dataclass(frozen=True, slots=True)
class _FilePreview:
    """The file that a call would send or affect, for the approving person.

    Args:
        line: A description of the file; empty if the call affects no file.
        version: Text that changes with the content that the call would send or replace.
        sizes: The size in bytes by file name; documents of Google's editors have no size.
    """

    line: str = ""
    version: str = ""
    sizes: dict[str, int] = field(default_factory=dict[str, int])


class Drive(GoogleConnection):
    """Files and folders. A file is named by its id, its URL or its path (`Reports/Q3.pdf`)."""

    root = "https://www.googleapis.com/"
    scopes: ClassVar = {
        "reading": "drive.readonly",
        "creating": "drive.file",
        "update": "drive",
        "removing": "drive",
        "share": "drive",
        "unshare": "drive",
    }
    scope_inclusions: ClassVar = {"drive": frozenset({"drive.readonly", "drive.file"})}
    summary = "Google Drive: files and folders."

    @property
    def _resolver(self) -> PathResolver:
        return PathResolver(self.transport)

    # -- reading ------------------------------------------------------------------------

    @action("reading", effect="read", trust=_TRUST)
    async def search(
        self,
        text: str = "",
        name: str = "",
        folder: str = "",
        kind: str = "",
        query: str = "",
        limit: int = 50,
    ) -> Found:
        """Files whose content has `text` or whose name has `name`, in a folder, of a kind (folder,
        document, spreadsheet, pdf, or a media type); `query` is in Drive's own language. The
        newest first, at most 1000.
        """  # noqa: D205 - the model reads the whole paragraph
        if not 1 <= limit <= _MAX_SEARCH_RESULTS:
            raise ToolRefusedError(
                f"limit can be from 1 to {_MAX_SEARCH_RESULTS}; narrow the search"
            )
        conditions = [f"({query})"] if query else []
        # Ignore quoted texts, which may contain words of the query language, such as "trashed".
        query_words = _QUOTED.sub("", query)
        if "trashed" not in query_words:
            conditions.append("trashed = false")
        if text:
            conditions.append(f"fullText contains {quote_text(text)}")
        if name:
            conditions.append(f"name contains {quote_text(name)}")
        if kind:
            conditions.append(f"mimeType = {quote_text(self._media_type_of(kind))}")
        if folder:
            conditions.append(f"{quote_text(await self._resolver.folder(folder))} in parents")
        # One file more than the limit shows whether there are more.
        listing = Request(
            "search files",
            "GET",
            _FILES,
            query={
                "q": " and ".join(conditions),
                "fields": f"nextPageToken,incompleteSearch,files({FIELDS})",
                # Google does not sort the results of a full-text search.
                "orderBy": None if text or "fullText" in query_words else "modifiedTime desc",
                "pageSize": min(limit + 1, _MAX_SEARCH_RESULTS),
                **IN_ALL_DRIVES,
            },
        )
        files: list[FileInfo] = []
        notices: list[str] = []

        def note_incomplete_search(page: Mapping[str, Any]) -> None:
            if page.get("incompleteSearch") and not notices:
                notices.append("Google did not search all shared drives; name a folder")

        async for item in self.transport.pages(listing, "files", note_incomplete_search):
            if len(files) == limit:
                notices.append(f"these are the first {limit}; there are more")
                break
            files.append(file_of(item))
        return Found(files=files, notice="; ".join(notices) or None)

    @action("reading", effect="read", trust=_TRUST)
    async def get(self, file: str) -> FileInfo:
        """Describe a file: name, kind, size, time of change, folder, owner and link."""
        return file_of(await self._resolver.find(file))

    @action("reading", effect="read")
    async def download(
        self,
        file: str,
        type: str = "",  # noqa: A002 - scripts pass the argument by this name
    ) -> Content:
        """A file's content as bytes. Documents of Google's editors are exported: a document as
        text/markdown, a spreadsheet as text/csv (its first sheet), or as another media `type`.
        """  # noqa: D205 - the model reads the whole paragraph
        record = await self._resolver.find(file)
        media_type = str(record["mimeType"])
        requested_type = type_of(type) if type else ""
        path = f"{_FILES}/{segment(str(record['id']))}"
        if media_type.startswith(NATIVE):
            result_type = requested_type or _EXPORT_TYPES.get(media_type, "")
            if not result_type:
                raise ToolRefusedError(f"{record['name']} is a {media_type}, which has no content")
            request = Request(
                "export a file", "GET", f"{path}/export", query={"mimeType": result_type}
            )
        else:
            if requested_type not in ("", media_type):
                raise ToolRefusedError(f"{record['name']} is {media_type}, and is not converted")
            result_type = media_type
            max_bytes = self.settings.max_bytes
            if int(record.get("size") or 0) > max_bytes:
                raise ToolRefusedError(
                    f"{record['name']} has {int(record['size']):,} bytes, over {max_bytes:,} "
                    "(max_bytes)"
                )
            query = {"alt": "media", **ALL_DRIVES}
            request = Request("download a file", "GET", path, query=query)
        data = (await self.transport.send(request)).content
        return Content(name=str(record["name"]), type=result_type, size=len(data), data=data)

    @action("reading", effect="read")
    async def text(self, file: str) -> str:
        """A file's content as text: a document as Markdown, a spreadsheet as CSV."""
        content = await self.download(file)
        try:
            return content["data"].decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ToolRefusedError(
                f"{content['name']} ({content['type']}) is not text in UTF-8; download it"
            ) from None

    @action("reading", effect="read", trust=_PERMISSION)
    async def list_permissions(self, file: str) -> list[PermissionInfo]:
        """List the people who may read or change a file."""
        record = await self._resolver.find(file)
        return [permission_of(item) for item in await self._permissions(str(record["id"]))]

    # -- changing -----------------------------------------------------------------------

    @action("creating", effect="write", trust=_TRUST, sinks=["folder"])
    async def create(
        self,
        name: str,
        content: str | bytes = b"",
        folder: str = "",
        type: str = "",  # noqa: A002 - scripts pass the argument by this name
        file: str = "",
        context: CallContext | None = None,
    ) -> FileInfo:
        """Store a new file with `content`, or with the content of the task's file `file`. Without a
        folder, it is stored at the top. The type "document" turns Markdown into a Google document,
        "spreadsheet" turns CSV into a sheet.
        """  # noqa: D205 - the model reads the whole paragraph
        if content and file:
            raise ToolRefusedError("give content or file, not both")
        if file:
            max_bytes = self.settings.max_bytes
            _, content = await asyncio.to_thread(read_task_file, context, file, max_bytes)
        media_type = self._media_type_of(type) if type else _guess_media_type(name, content)
        if media_type == FOLDER:
            raise ToolRefusedError("create_folder makes folders")
        body: dict[str, Any] = {"name": name, "mimeType": media_type}
        # The top folder is Drive's default. Its id is not looked up, because the scope drive.file
        # does not allow that.
        if folder not in _ROOT_NAMES:
            body["parents"] = [await self._resolver.folder(folder)]
        data = utf8(content, "store a file") if isinstance(content, str) else content
        is_native = media_type.startswith(NATIVE)
        if is_native and not data:
            return file_of(await self._make_empty(body))
        if is_native and media_type not in _UPLOAD_TYPES:
            raise ToolRefusedError(
                f"content cannot become a {type}: give the content or the type, not both"
            )
        request = Request(
            "store a file",
            "POST",
            f"upload/{_FILES}",
            query={"fields": FIELDS, **ALL_DRIVES},
            body=body,
        )
        # The body has the type of the new file; Drive converts the uploaded content to that type.
        upload_type = _UPLOAD_TYPES.get(media_type, media_type)
        return file_of(await upload(self.transport, request, data, upload_type))

    @action("creating", effect="write", trust=_TRUST, sinks=["path"])
    async def create_folder(self, path: str) -> FileInfo:
        """Make a folder with any missing parent folders; an existing folder stays."""
        folder, names = await self._resolver.split_path(path)
        if not names:
            raise ToolRefusedError("the path names no folder")
        for name in names:
            matches = await self._resolver.children(str(folder["id"]), name)
            existing = [
                await self._resolver.target(item) for item in matches if leads_to_folder(item)
            ]
            if existing:
                folder = existing[0]
                continue
            # The top folder is Drive's default.
            parents = {} if folder["id"] == "root" else {"parents": [str(folder["id"])]}
            folder = await self._make_empty({"name": name, "mimeType": FOLDER, **parents})
        return file_of(folder)

    @action("creating", effect="write", trust=_TRUST, sinks=["file", "folder"])
    async def copy(self, file: str, name: str = "", folder: str = "") -> FileInfo:
        """Copy a file, under another name or into another folder."""
        record = await self._resolver.find(file)
        body: dict[str, Any] = {"name": name or f"Copy of {record['name']}"}
        if folder:
            body["parents"] = [await self._resolver.folder(folder)]
        copied = await self.transport.json(
            Request(
                "copy a file",
                "POST",
                f"{_FILES}/{segment(str(record['id']))}/copy",
                query={"fields": FIELDS, **ALL_DRIVES},
                body=body,
                send_once=True,
            )
        )
        return file_of(copied)

    @action("update", effect="write", trust=_TRUST, sinks=["file", "folder"])
    async def update(
        self,
        file: str,
        content: str | bytes | None = None,
        name: str = "",
        folder: str = "",
    ) -> FileInfo:
        """Replace a file's content, rename it, or move it into another folder."""
        # A shortcut has its own name and folder, but its target's content.
        record = await self._resolver.find(file, follow=content is not None)
        if content is None and not name and not folder:
            raise ToolRefusedError("give content, name or folder")
        body: dict[str, Any] = {"name": name} if name else {}
        query: dict[str, Any] = {"fields": FIELDS, **ALL_DRIVES}
        if folder:
            query["addParents"] = await self._resolver.folder(folder)
            parents = ",".join(record.get("parents") or [])  # missing for files of others
            if parents:
                query["removeParents"] = parents
        path = f"{_FILES}/{segment(str(record['id']))}"
        if content is None:
            return await self._patch("change a file", path, body, query)
        data = utf8(content, "replace a file") if isinstance(content, str) else content
        media_type = _UPLOAD_TYPES.get(str(record["mimeType"]), str(record["mimeType"]))
        request = Request("replace a file", "PATCH", f"upload/{path}", query=query, body=body)
        return file_of(await upload(self.transport, request, data, media_type))

    @action("removing", effect="write", trust=_TRUST, sinks=["file"])
    async def trash(self, file: str) -> FileInfo:
        """Move a file or folder to the trash, from which Google deletes it after 30 days."""
        record = await self._resolver.find(file, follow=False)
        path = f"{_FILES}/{segment(str(record['id']))}"
        return await self._patch("trash a file", path, {"trashed": True}, {})

    @action("removing", effect="irreversible", trust="own", sinks=["file"])
    async def delete(self, file: str) -> None:
        """Delete a file, or a folder with all that is in it, forever; `trash` can be undone."""
        record = await self._resolver.find(file, follow=False)
        await self.transport.send(
            Request(
                "delete a file",
                "DELETE",
                f"{_FILES}/{segment(str(record['id']))}",
                query=ALL_DRIVES,
            )
        )

    @action("share", effect="irreversible", trust=_PERMISSION, sinks=["file", "who"])
    async def share(
        self,
        file: str,
        who: Recipient,
        role: Literal["reader", "commenter", "writer"] = "reader",
        message: str = "",
        notify: bool = True,
    ) -> PermissionInfo:
        """Let `who` read, comment or change a file. `who` is an email address,
        `domain:example.com`, or `anyone` (everybody who has the link). An address gets an email,
        unless `notify` is false.
        """  # noqa: D205 - the model reads the whole paragraph
        record = await self._resolver.find(file)
        body: dict[str, Any] = {"role": role}
        query: dict[str, Any] = {"fields": "id,type,role,emailAddress,domain", **ALL_DRIVES}
        if who == "anyone":
            body["type"] = "anyone"
        elif who.startswith("domain:"):
            body |= {"type": "domain", "domain": who.removeprefix("domain:")}
        else:
            body |= {"type": "user", "emailAddress": who}
            query["sendNotificationEmail"] = notify
            if message and notify:
                query["emailMessage"] = message
        permission = await self.transport.json(
            Request(
                "share a file",
                "POST",
                f"{_FILES}/{segment(str(record['id']))}/permissions",
                query=query,
                body=body,
                send_once=True,
            )
        )
        return permission_of(permission)

    @action("unshare", effect="write", trust=_PERMISSION, sinks=["file", "who"])
    async def unshare(self, file: str, who: str) -> PermissionInfo:
        """Take a permission away. `who`: an address, `domain:…`, `anyone`, or a permission's id."""
        resource = await self._resolver.find(file)
        key = str(resource["id"])
        permissions = [permission_of(item) for item in await self._permissions(key)]
        recipient = who.removeprefix("domain:").lower()
        permission = next(
            (p for p in permissions if recipient in (p["who"].lower(), p["id"].lower())), None
        )
        if permission is None:
            recipients = ", ".join(p["who"] for p in permissions)
            raise ToolRefusedError(
                f"{resource['name']} is not shared with {who!r}, but with: {recipients}"
            )
        await self.transport.send(
            Request(
                "unshare a file",
                "DELETE",
                f"{_FILES}/{segment(key)}/permissions/{segment(permission['id'])}",
                query=ALL_DRIVES,
            )
        )
        return permission

    async def preview(self, call: ProposedCall) -> Allowed | None:
        """Preview the file and folder that a call affects.

        An approval counts only while the preview's ``basis`` stays the same. The basis contains the
        version of the file that the call would send, overwrite or delete.
        """
        file = call.arguments.get("file")
        folder = call.arguments.get("folder")
        shown = _FilePreview()
        if file and call.action == "create":
            shown = await self._preview_upload(call.context, str(file))
        elif file:
            shown = await self._preview_file(call, str(file))
        lines = [shown.line] if shown.line else []
        if folder:
            lines.append(f"In {_describe_file(file_of(await self._resolver.find(str(folder))))}")
        if not lines:
            return None
        text = "\n".join(lines)
        return Allowed(preview=text, basis=f"{shown.version}\n{text}", files=shown.sizes)

    # -- parts --------------------------------------------------------------------------

    async def _preview_upload(self, context: CallContext | None, file: str) -> _FilePreview:
        """Preview a file of the task that a call would upload."""
        name, data = await asyncio.to_thread(read_task_file, context, file, self.settings.max_bytes)
        line = f"Content: {name}, {len(data):,} bytes"
        return _FilePreview(line, version=hashlib.sha256(data).hexdigest())

    async def _preview_file(self, call: ProposedCall, file: str) -> _FilePreview:
        """Preview a file in Drive that a call affects."""
        changes_file = call.action in _CHANGING_ACTIONS
        writes_content = call.arguments.get("content") is not None
        # A shortcut can be renamed or deleted without its target; reading and writing use the
        # target.
        changes_only_shortcut = changes_file and not writes_content
        info = file_of(await self._resolver.find(file, follow=not changes_only_shortcut))
        size = info["size"]
        return _FilePreview(
            _describe_file(info),
            version=f"{info['modified']} {size}" if changes_file else "",
            sizes={info["name"]: size} if size else {},
        )

    def _media_type_of(self, kind: str) -> str:
        media_type = type_of(kind)
        if not media_type:
            raise ToolRefusedError(f"unknown kind {kind!r}: a media type, or one of {kinds()}")
        return media_type

    async def _permissions(self, key: str) -> list[dict[str, Any]]:
        listing = Request(
            "list permissions",
            "GET",
            f"{_FILES}/{segment(key)}/permissions",
            query={
                "fields": "nextPageToken,permissions(id,type,role,emailAddress,domain)",
                **ALL_DRIVES,
            },
        )
        return [item async for item in self.transport.pages(listing, "permissions")]

    async def _make_empty(self, body: dict[str, Any]) -> dict[str, Any]:
        """Create a folder, or an empty document of Google's editors."""
        return await self.transport.json(
            Request(
                "make a folder" if body["mimeType"] == FOLDER else "make an empty document",
                "POST",
                _FILES,
                query={"fields": FIELDS, **ALL_DRIVES},
                body=body,
                send_once=True,
            )
        )

    async def _patch(
        self, what: str, path: str, body: dict[str, Any], query: dict[str, Any]
    ) -> FileInfo:
        """Change a file's metadata; if Drive refuses a retry, check whether the file is changed.

        Raises:
            LostAnswerError: If the response was lost, and the change cannot be confirmed.
        """
        query = {"fields": FIELDS, **ALL_DRIVES, **query}
        request = Request(what, "PATCH", path, query=query, body=body)
        try:
            return file_of(await self.transport.json(request))
        except LostAnswerError as error:
            if not error.is_retry_refused:
                raise
            # Drive refuses a move that was made already, so the first request may have succeeded.
            current_state = Request(what, "GET", path, query={"fields": FIELDS, **ALL_DRIVES})
            record = await self.transport.json(current_state)
            if not _is_changed(record, body, new_folder=query.get("addParents")):
                raise
            return file_of(record)


def _is_changed(record: Mapping[str, Any], body: dict[str, Any], new_folder: str | None) -> bool:
    """Return True if a request has changed a file, judging by the file's current metadata.

    Args:
        record: The file's current metadata.
        body: The metadata that the request sets.
        new_folder: The folder to which the request moves the file; None if it moves no file.
    """
    is_in_folder = new_folder is None or record.get("parents") == [new_folder]
    return is_in_folder and body.items() <= record.items()


def _describe_file(file: FileInfo) -> str:
    owner = f", of {file['owner']}" if file["owner"] else ""
    return f"{file['kind']} {file['name']!r}{owner}, {file['link'] or file['id']}"
