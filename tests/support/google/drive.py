"""Files and folders, their content, permissions, shared drives and exports."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

from support.google.calls import ApiError, Call, Ids, Media, page, serves

FOLDER = "application/vnd.google-apps.folder"
NATIVE = "application/vnd.google-apps."
EXPORTS = {
    "document": ("text/plain", "text/markdown", "text/html", "application/pdf"),
    "spreadsheet": ("text/csv", "application/pdf", "text/tab-separated-values"),
}
WIDE_WRITE = frozenset({"drive"})
WIDE_READ = frozenset({"drive", "drive.readonly"})
READS = ("drive.files.get", "drive.files.export", "drive.permissions.list")
KEYS_HEADER = "X-Goog-Drive-Resource-Keys"
DEFAULT_FIELDS = ("kind", "id", "name", "mimeType")


@dataclass
class File:
    id: str
    data: dict[str, Any]
    content: bytes | None = None
    permissions: dict[str, dict[str, Any]] = field(default_factory=dict)


class DriveService:
    """One drive that all users see, and shared drives."""

    def __init__(self) -> None:
        self.files: dict[str, File] = {}
        self.drives: dict[str, str] = {}
        self.mails: list[tuple[str, str]] = []
        self.exporters: dict[str, Any] = {}
        self.creators: dict[str, Any] = {}
        self.deleters: dict[str, Any] = {}
        self.ids = Ids()
        self.made_here: set[str] = set()  # by the app, which drive.file is for
        self.incomplete = False
        self.root = self.add("My Drive", FOLDER, parent=None)

    def now(self) -> str:
        return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def add(
        self,
        name: str,
        kind: str,
        content: bytes | None = None,
        *,
        parent: str | None = "root",
        owner: str = "ada@example.com",
        key: str | None = None,
        drive: str | None = None,
    ) -> File:
        key = key or self.ids.new("1file")
        parent = self.root.id if parent == "root" else parent
        moment = self.now()
        data: dict[str, Any] = {
            "kind": "drive#file",
            "id": key,
            "name": name,
            "mimeType": kind,
            "trashed": False,
            "createdTime": moment,
            "modifiedTime": moment,
            "version": "1",
            "starred": False,
            "webViewLink": f"https://drive.google.com/file/d/{key}/view",
        }
        if parent is not None:
            data["parents"] = [parent]
        if drive is not None:
            data["driveId"] = drive
        file = File(key, data)
        if drive is None:
            data["owners"] = [{"kind": "drive#user", "emailAddress": owner, "displayName": owner}]
            file.permissions["owner"] = {
                "id": "owner",
                "type": "user",
                "role": "owner",
                "emailAddress": owner,
                "kind": "drive#permission",
            }
        self.files[key] = file
        if content is not None:
            self.fill(file, content)
        return file

    def fill(self, file: File, content: bytes) -> None:
        file.content = content
        file.data |= {
            "size": str(len(content)),
            "md5Checksum": hashlib.md5(content).hexdigest(),
            "sha256Checksum": hashlib.sha256(content).hexdigest(),
        }

    def touch(self, key: str) -> None:
        if key in self.files:
            self.files[key].data["modifiedTime"] = self.now()

    def shortcut(self, name: str, target: File, **more: Any) -> File:
        """A shortcut to a file."""
        file = self.add(name, f"{NATIVE}shortcut", **more)
        message = {"targetId": target.id, "targetMimeType": target.data["mimeType"]}
        if "resourceKey" in target.data:
            message["targetResourceKey"] = target.data["resourceKey"]
        file.data["shortcutDetails"] = message
        return file

    def find(self, key: str) -> File:
        file = self.files.get(self.root.id if key == "root" else key)
        if file is None:
            raise ApiError(404, f"File not found: {key}.", "notFound")
        return file

    # -- files --------------------------------------------------------------------------

    @serves("drive.files.list")
    def list(self, call: Call) -> Any:
        test = _query(call.get("q") or "", self)
        drives = call.get("includeItemsFromAllDrives")
        if drives and not call.get("supportsAllDrives"):
            raise ApiError(
                403, "The supportsAllDrives parameter must be set to true.", "teamDrivesParentLimit"
            )
        corpora = call.get("corpora", "user")
        if corpora == "allDrives" and not drives:
            raise ApiError(
                403, "includeItemsFromAllDrives must be set for corpora allDrives.", "invalid"
            )
        drives = drives and corpora in ("allDrives", "drive")
        only = call.get("driveId")
        if only is not None and only not in self.drives:
            raise ApiError(404, f"Shared drive not found: {only}", "notFound")
        found = [
            file
            for file in self.files.values()
            if file is not self.root
            and (drives or "driveId" not in file.data)
            and (only is None or file.data.get("driveId") == only)
            and self._may(file, call, WIDE_READ)
            and test(file)
        ]
        for key in reversed((call.get("orderBy") or "").split(",")):
            name, _, direction = key.strip().partition(" ")
            if name:
                found.sort(
                    key=lambda f, n=name: str(f.data.get(n, "")), reverse=direction == "desc"
                )
        some, rest = page(found, call, 100, 1000, "pageSize")
        return {
            "kind": "drive#fileList",
            "incompleteSearch": self.incomplete,
            "files": [self._shown(f, call, listed=True) for f in some],
            **rest,
        }

    @serves("drive.files.get")
    def get(self, call: Call) -> Any:
        file = self._seen(call)
        if call.get("alt") == "media":
            if file.content is None:
                raise ApiError(
                    403,
                    "Only files with binary content can be downloaded. Use Export with Docs Editors files.",
                    "fileNotDownloadable",
                )
            return Media(file.content, file.data["mimeType"])
        return self._shown(file, call)

    @serves("drive.files.export")
    def export(self, call: Call) -> Any:
        file = self._seen(call)
        kind = file.data["mimeType"].removeprefix(NATIVE)
        if call["mimeType"] not in EXPORTS.get(kind, ()):
            raise ApiError(400, "The requested conversion is not supported.", "badRequest")
        content = self.exporters[kind](file.id, call["mimeType"])
        if len(content) > 10 * 1024 * 1024:
            raise ApiError(403, "This file is too large to be exported.", "exportSizeLimitExceeded")
        return Media(content, call["mimeType"])

    @serves("drive.files.create")
    def create(self, call: Call) -> Any:
        body = call.body
        parents = body.get("parents", ["root"])
        if len(parents) != 1:
            raise ApiError(400, "A file has one parent.", "multipleParentsNotSupported")
        parent = self._parent(parents[0], call) if "parents" in body else self.root
        kind = body.get("mimeType") or call.media_type or "application/octet-stream"
        is_empty = not call.media or kind == FOLDER or call.media_type == kind
        if kind.startswith(NATIVE) and call.media is not None and is_empty:
            raise ApiError(400, "Bad Request", "badRequest")
        file = self.add(
            body.get("name", "Untitled"),
            kind,
            parent=parent.id,
            owner=call.user,
            drive=parent.data.get("driveId"),
        )
        self.made_here.add(file.id)
        self._describe(file, body)
        native = kind.removeprefix(NATIVE)
        if native in self.creators:
            self.creators[native](file.id, file.data["name"], call.media, call.media_type)
        elif call.media is not None or not kind.startswith(NATIVE):
            self.fill(file, call.media or b"")
        return self._shown(file, call)

    @serves("drive.files.update")
    def update(self, call: Call) -> Any:
        file = self._seen(call)
        if "trashed" in call.body:
            file.data["trashed"] = call.body["trashed"]
        for name in ("name", "mimeType"):
            if name in call.body:
                file.data[name] = call.body[name]
        if "parents" in call.body or "id" in call.body:
            raise ApiError(
                403,
                "The parents field is not directly writable in update requests. Use the addParents and removeParents parameters instead.",
                "fieldNotWritable",
            )
        self._describe(file, call.body)
        if call.get("removeParents") == "":
            raise ApiError(400, "Invalid Value", "invalid")
        if add := call.get("addParents"):
            old = file.data.get("parents")
            if old and call.get("removeParents") not in old:
                raise ApiError(403, "A file has one parent.", "cannotAddParent")
            file.data["parents"] = [self._parent(add, call).id]
        if call.media is not None:
            if file.data["mimeType"].startswith(NATIVE):
                raise ApiError(
                    403,
                    "Content cannot be uploaded to a file of the editors here.",
                    "fileNotUploadable",
                )
            self.fill(file, call.media)
        self.touch(file.id)
        return self._shown(file, call)

    @serves("drive.files.copy")
    def copy(self, call: Call) -> Any:
        old = self._seen(call)
        parent = call.body.get("parents", old.data.get("parents", ["root"]))[0]
        new = self.add(
            call.body.get("name", f"Copy of {old.data['name']}"),
            old.data["mimeType"],
            old.content,
            parent=self._parent(parent, call).id if "parents" in call.body else parent,
        )
        self.made_here.add(new.id)
        return self._shown(new, call)

    @serves("drive.files.delete")
    def delete(self, call: Call) -> Any:
        file = self._seen(call)
        for key in [k for k, f in self.files.items() if file.id in f.data.get("parents", ())]:
            self.files.pop(key, None)
        del self.files[file.id]
        for forget in self.deleters.values():
            forget(file.id)
        return None

    @serves("drive.drives.list")
    def shared_drives(self, call: Call) -> Any:
        drives = [
            {"id": key, "name": name, "kind": "drive#drive"} for key, name in self.drives.items()
        ]
        some, rest = page(drives, call, 10, 100, "pageSize")
        return {"kind": "drive#driveList", "drives": some, **rest}

    # -- permissions --------------------------------------------------------------------

    @serves("drive.permissions.list")
    def permissions(self, call: Call) -> Any:
        some, rest = page(list(self._seen(call).permissions.values()), call, 100, 100, "pageSize")
        return {"kind": "drive#permissionList", "permissions": some, **rest}

    @serves("drive.permissions.create")
    def share(self, call: Call) -> Any:
        file, body = self._seen(call), call.body
        kind, role = body.get("type"), body.get("role")
        if kind not in ("user", "group", "domain", "anyone") or role not in (
            "reader",
            "commenter",
            "writer",
            "fileOrganizer",
            "organizer",
            "owner",
        ):
            raise ApiError(400, "The permission type and role fields are required.", "required")
        if kind in ("user", "group") and "@" not in body.get("emailAddress", ""):
            raise ApiError(
                400,
                "The specified emailAddress is invalid or not applicable for the given permission type.",
                "invalidSharingRequest",
            )
        if kind == "domain" and not body.get("domain"):
            raise ApiError(400, "The domain field is required.", "required")
        if role == "owner" and not call.get("transferOwnership"):
            raise ApiError(
                403,
                "The transferOwnership parameter must be enabled when the permission role is 'owner'.",
                "forbidden",
            )
        key = self.ids.new("perm") if kind != "anyone" else "anyoneWithLink"
        for old, known in file.permissions.items():
            if kind in ("user", "group") and known.get("emailAddress") == body["emailAddress"]:
                key = old
        file.permissions[key] = {**body, "id": key, "kind": "drive#permission"}
        if kind in ("user", "group") and call.get("sendNotificationEmail", True):
            self.mails.append((body["emailAddress"], call.get("emailMessage", "")))
        return {"kind": "drive#permission", "id": key, "type": kind, "role": role} | (
            {"emailAddress": body["emailAddress"]} if "emailAddress" in body else {}
        )

    @serves("drive.permissions.delete")
    def unshare(self, call: Call) -> Any:
        file = self._seen(call)
        if file.permissions.pop(call["permissionId"], None) is None:
            raise ApiError(404, f"Permission not found: {call['permissionId']}.", "notFound")
        return None

    # -- parts --------------------------------------------------------------------------

    def _seen(self, call: Call) -> File:
        file = self.find(call["fileId"])
        self._check(file, call, writes=call.method not in READS)
        return file

    def _parent(self, key: str, call: Call) -> File:
        if key in self.drives:
            return File(key, {"driveId": key})
        parent = self.find(key)
        self._check(parent, call, writes=True)
        return parent

    def _may(self, file: File, call: Call, wide: frozenset[str]) -> bool:
        """True if a token reaches a file: the narrow scope is for the app's own files."""
        names = {scope.rpartition("/")[2] for scope in call.scopes}
        return bool(names & wide) or ("drive.file" in names and file.id in self.made_here)

    def _check(self, file: File, call: Call, *, writes: bool) -> None:
        gone = ApiError(404, f"File not found: {file.id}.", "notFound")
        if "driveId" in file.data and not call.get("supportsAllDrives"):
            raise gone
        if not self._may(file, call, WIDE_READ | WIDE_WRITE):
            raise gone
        key = file.data.get("resourceKey")
        if key and f"{file.id}/{key}" not in (call.headers.get(KEYS_HEADER) or "").split(","):
            raise gone
        if writes and not self._may(file, call, WIDE_WRITE):
            raise ApiError(
                403,
                f"The user has not granted the app write access to the file {file.id}.",
                "appNotAuthorizedToFile",
            )

    def _describe(self, file: File, body: dict[str, Any]) -> None:
        for name in ("description", "starred", "properties", "appProperties"):
            if name in body:
                file.data[name] = body[name]

    def _shown(self, file: File, call: Call, *, listed: bool = False) -> dict[str, Any]:
        if call.get("fields"):
            return file.data
        return {name: file.data[name] for name in DEFAULT_FIELDS}


def _query(text: str, drive: DriveService) -> Any:
    """Drive's query language as far as files are searched with it: terms with `and`."""
    tokens = re.findall(r"\(|\)|'(?:[^'\\]|\\.)*'|!=|>=|<=|=|>|<|\w+", text)
    if text and re.sub(r"\s", "", "".join(tokens)) != re.sub(r"\s", "", text):
        raise ApiError(400, "Invalid Value", "invalid")
    position = 0

    def take() -> str:
        nonlocal position
        if position >= len(tokens):
            raise ApiError(400, "Invalid Value", "invalid")
        position += 1
        return tokens[position - 1]

    def peek() -> str:
        return tokens[position] if position < len(tokens) else ""

    def both() -> Any:
        found = term()
        while peek() == "and":
            take()
            left, right = found, term()
            found = lambda f, a=left, b=right: a(f) and b(f)  # noqa: E731
        return found

    def term() -> Any:
        word = take()
        if word == "(":
            found = both()
            if take() != ")":
                raise ApiError(400, "Invalid Value", "invalid")
            return found
        if word.startswith("'"):
            if (take(), take()) != ("in", "parents"):
                raise ApiError(400, "Invalid Value", "invalid")
            key = _value(word)
            key = drive.root.id if key == "root" else key
            return lambda f: key in f.data.get("parents", ())
        return compare(word, take(), _value(take()))

    def compare(name: str, operator: str, value: Any) -> Any:
        if name not in (
            "name",
            "fullText",
            "mimeType",
            "trashed",
            "modifiedTime",
            "createdTime",
            "starred",
            "sharedWithMe",
        ):
            raise ApiError(400, "Invalid Value", "invalid")
        low = value.lower() if isinstance(value, str) else value
        if operator == "contains" and name == "name":
            # as the vendor has it: prefixes of words only
            return lambda f: (
                any(w.startswith(low) for w in re.split(r"[\s_.-]+", f.data["name"].lower()))
                or f.data["name"].lower().startswith(low)
            )
        if operator == "contains" and name == "fullText":
            return lambda f: (
                low in f.data["name"].lower() or low.encode() in (f.content or b"").lower()
            )
        if operator == "contains":
            return lambda f: low in str(f.data.get(name, "")).lower()
        tests = {
            "=": lambda a: a == low,
            "!=": lambda a: a != low,
            ">": lambda a: a > low,
            "<": lambda a: a < low,
            ">=": lambda a: a >= low,
            "<=": lambda a: a <= low,
        }
        if operator not in tests:
            raise ApiError(400, "Invalid Value", "invalid")
        test = tests[operator]
        return lambda f: test(
            f.data[name].lower() if isinstance(f.data.get(name), str) else f.data.get(name, False)
        )

    if not tokens:
        return lambda f: True
    found = both()
    if position != len(tokens):
        raise ApiError(400, "Invalid Value", "invalid")
    return found


def _value(token: str) -> Any:
    if token in ("true", "false"):
        return token == "true"
    if not token.startswith("'"):
        raise ApiError(400, "Invalid Value", "invalid")
    return re.sub(r"\\(.)", r"\1", token[1:-1])
