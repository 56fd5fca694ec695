"""``Gmail``: a mailbox that a script can search, read, sort and send from."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypedDict

from delf import CallContext, action
from delf.errors import ToolRefusedError, did_you_mean
from delf.protocols.connection import Allowed, ProposedCall
from delf.types import Trust
from delf_gmail.reading import (
    Mail,
    MessageLine,
    Part,
    Resource,
    draft_text,
    files_of,
    headers_of,
    line_of,
    mail_of,
    people_in,
    texts_elsewhere,
    unbase64,
)
from delf_gmail.writing import MAX_BYTES, Attachment, build
from delf_google.addresses import People, address, addresses
from delf_google.connection import GoogleConnection
from delf_google.errors import GoogleError
from delf_google.files import read_task_file
from delf_google.requests import Method, Request, segment
from delf_google.uploads import upload

_ME: Final = "gmail/v1/users/me"
_LINE_FIELDS: Final = "id,threadId,labelIds,snippet,internalDate,payload/headers"
_LINE_HEADERS: Final = ("From", "To", "Subject")
_REPLY_HEADERS: Final = ("From", "To", "Cc", "Reply-To", "Subject", "Message-ID", "References")
_MAX_FOUND: Final = 500
_MAX_CHANGED: Final = 1000
_MAX_SHOWN: Final = 200


class Found(TypedDict):
    """The messages that a search found; ``notice`` says when there are more."""

    messages: list[MessageLine]
    notice: str | None


class Thread(TypedDict):
    """A conversation, the oldest message first."""

    id: str
    subject: str
    messages: list[Mail]


class FileData(TypedDict):
    """An attachment with its content."""

    name: str
    type: str
    size: int
    data: bytes


class Label(TypedDict):
    """A label."""

    id: str
    name: str
    own: bool


class Sent(TypedDict):
    """A message that was sent."""

    id: str
    thread: str


class Draft(TypedDict):
    """A draft; ``id`` is what ``send_draft`` takes."""

    id: str
    message: str
    thread: str


class Changed(TypedDict):
    """The number of messages that a call changed."""

    changed: int


_TRUST: Final[Mapping[str, Trust]] = {
    **dict.fromkeys(("id", "thread", "labels", "date", "unread", "notice"), "own"),
    "*": "outside",
}
"""The authors of a mail's fields: the mailbox's own data is the user's."""


class Gmail(GoogleConnection):
    """A mailbox: searched and read with ``read``, changed and sent from with ``send``."""

    root = "https://gmail.googleapis.com/"
    scopes: ClassVar = {
        "reading": "gmail.readonly",
        **dict.fromkeys(("sending", "draft", "organizing"), "gmail.modify"),
    }
    broad: ClassVar = {"gmail.modify": frozenset({"gmail.readonly"})}
    summary = "Gmail: a mailbox."

    # -- read ---------------------------------------------------------------------------

    @action("reading", effect="read", trust=_TRUST)
    async def search(self, query: str = "", limit: int = 20) -> Found:
        """Messages that fit a query in Gmail's own syntax (`from:ada has:attachment newer_than:7d
        is:unread in:inbox`), the newest first; at most 500.
        """  # noqa: D205 - the model reads the whole paragraph
        if not 1 <= limit <= _MAX_FOUND:
            raise ToolRefusedError(f"limit can be from 1 to {_MAX_FOUND}; narrow the query instead")
        listing = Request(
            "search messages",
            "GET",
            f"{_ME}/messages",
            query={"q": query or None, "maxResults": min(limit + 1, _MAX_FOUND)},
        )
        ids: list[str] = []
        more = False
        async for item in self.transport.pages(listing, "messages"):
            if len(ids) == limit:
                more = True
                break
            ids.append(str(item["id"]))
        resources = await self._lines(ids)
        names = await self._label_names(resources)
        return Found(
            messages=[line_of(item, names(item)) for item in resources],
            notice=f"these are the first {limit}; there are more" if more else None,
        )

    @action("reading", effect="read", trust=_TRUST, author="verified_sender")
    async def read(self, message: str) -> Mail:
        """A message by its id: people, subject, text (HTML reduced to text), attachments."""
        resource = await self._get(message)
        await self._fetch_large_texts(resource)
        names = await self._label_names([resource])
        return await asyncio.to_thread(mail_of, resource, names(resource))

    @action("reading", effect="read", trust=_TRUST, author="verified_sender")
    async def thread(self, thread: str) -> Thread:
        """A conversation with all its messages, the oldest first."""
        found = await self.transport.json(
            Request("read a conversation", "GET", f"{_ME}/threads/{segment(thread)}")
        )
        resources: list[dict[str, Any]] = found.get("messages") or []
        for item in resources:
            await self._fetch_large_texts(item)
        names = await self._label_names(resources)
        mails = [await asyncio.to_thread(mail_of, item, names(item)) for item in resources]
        subject = mails[0]["subject"] if mails else ""
        return Thread(id=str(found["id"]), subject=subject, messages=mails)

    @action("reading", effect="read")
    async def attachment(self, message: str, name: str) -> FileData:
        """An attachment's content as bytes, by its name or its `part`."""
        parts = files_of((await self._get(message)).get("payload") or {})
        part = next((p for p in parts if p.number == name), None) or next(
            (p for p in parts if p.name == name), None
        )
        if part is None:
            known = [p.name for p in parts]
            raise ToolRefusedError(
                f"message {message} has no attachment {name[:200]!r}{did_you_mean(name, known)}. "
                f"Attachments: {', '.join(known) or 'none'}"
            )
        data = await self._content(message, part)
        return FileData(name=part.name, type=part.type, size=len(data), data=data)

    @action("reading", effect="read", trust="own")
    async def labels(self) -> list[Label]:
        """All labels: those of Gmail (INBOX, STARRED, …) and the user's own."""
        return [
            Label(id=item["id"], name=item["name"], own=item.get("type") == "user")
            for item in await self._labels()
        ]

    # -- send ---------------------------------------------------------------------------

    @action("sending", effect="irreversible", trust="own", sinks=["to", "cc", "bcc"])
    async def send(
        self,
        to: People,
        subject: str,
        text: str = "",
        html: str | None = None,
        cc: People = "",
        bcc: People = "",
        attachments: list[Attachment | str] | None = None,
        context: CallContext | None = None,
    ) -> Sent:
        """Send a message. Attachments: `{"name": "a.pdf", "data": bytes}`, or names of the task's
        files.
        """  # noqa: D205 - the model reads the whole paragraph
        files = await self._files(attachments, context)
        raw = await asyncio.to_thread(
            build,
            to=to,
            subject=subject,
            text=text,
            html=html,
            cc=cc,
            bcc=bcc,
            attachments=files,
        )
        return await self._send(raw, None)

    @action("sending", effect="irreversible", trust="own", sinks=["message"])
    async def reply(
        self,
        message: str,
        text: str = "",
        html: str | None = None,
        everyone: bool = False,
        attachments: list[Attachment | str] | None = None,
        context: CallContext | None = None,
    ) -> Sent:
        """Answer a message in its conversation: its sender, or with `everyone` all who got it."""
        files = await self._files(attachments, context)
        raw, thread = await self._answer(message, text, html, files, everyone=everyone)
        return await self._send(raw, thread)

    @action(effect="write", trust="own", sinks=["to", "cc", "bcc", "reply_to"])
    async def draft(
        self,
        text: str = "",
        to: People = "",
        subject: str = "",
        html: str | None = None,
        cc: People = "",
        bcc: People = "",
        attachments: list[Attachment | str] | None = None,
        reply_to: str | None = None,
        context: CallContext | None = None,
    ) -> Draft:
        """Write a draft that a person can look at and send; `reply_to` is the id of a message."""
        files = await self._files(attachments, context)
        if reply_to is not None:
            if to or subject or cc or bcc:
                raise ToolRefusedError("with reply_to, leave out people and subject")
            raw, thread = await self._answer(reply_to, text, html, files)
        else:
            raw, thread = (
                await asyncio.to_thread(
                    build,
                    to=to,
                    subject=subject,
                    text=text,
                    html=html,
                    cc=cc,
                    bcc=bcc,
                    attachments=files,
                ),
                None,
            )
        body = {"message": {"threadId": thread} if thread else {}}
        made = await self._upload("write a draft", f"{_ME}/drafts", body, raw)
        inner: dict[str, Any] = made.get("message") or {}
        return Draft(id=str(made["id"]), message=str(inner["id"]), thread=str(inner["threadId"]))

    @action("sending", effect="irreversible", trust="own", sinks=["draft"])
    async def send_draft(self, draft: str) -> Sent:
        """Send a draft as it is, by its id."""
        made = await self._post("send a draft", f"{_ME}/drafts/send", {"id": draft}, once=True)
        return Sent(id=str(made["id"]), thread=str(made["threadId"]))

    @action("organizing", effect="write", trust="own", sinks=["messages"])
    async def label(
        self,
        messages: str | list[str],
        add: str | list[str] = "",
        remove: str | list[str] = "",
    ) -> Changed:
        """Put labels on messages or take them off, by name; a new name becomes a new label.
        UNREAD and STARRED are labels, too.
        """  # noqa: D205 - the model reads the whole paragraph
        adding, removing = _as_list(add), _as_list(remove)
        if not adding and not removing:
            raise ToolRefusedError("name labels to add or to remove")
        known = {str(item["name"]).lower(): str(item["id"]) for item in await self._labels()}
        for name in removing:
            if name.lower() not in known:
                raise ToolRefusedError(f"there is no label {name!r}{did_you_mean(name, known)}")
        for name in adding:
            if name.lower() not in known:
                known[name.lower()] = await self._make_label(name)
        body = {
            "addLabelIds": [known[name.lower()] for name in adding],
            "removeLabelIds": [known[name.lower()] for name in removing],
        }
        return await self._change(_as_list(messages), body)

    @action("organizing", effect="write", trust="own", sinks=["messages"])
    async def archive(self, messages: str | list[str]) -> Changed:
        """Take messages out of the inbox; they stay in the mailbox."""
        return await self._change(_as_list(messages), {"removeLabelIds": ["INBOX"]})

    @action("organizing", effect="write", trust="own", sinks=["messages"])
    async def trash(self, messages: str | list[str]) -> Changed:
        """Move messages to the trash, from which Gmail deletes them after 30 days."""
        ids = _as_list(messages)
        paths = [f"{_ME}/messages/{segment(key)}/trash" for key in ids]
        await asyncio.gather(*(self._post("trash a message", path, {}) for path in paths))
        return Changed(changed=len(ids))

    async def preview(self, call: ProposedCall) -> Allowed | None:
        """Preview the receivers of an answer, the messages, or the text of a draft."""
        given = call.arguments
        if call.action == "send_draft":
            return await self._draft_preview(str(given["draft"]))
        lines: list[str] = []
        answered = given.get("message") if call.action == "reply" else given.get("reply_to")
        if answered is not None:
            lines += await self._reply_lines(str(answered), everyone=bool(given.get("everyone")))
        messages: Any = given.get("messages")
        if messages:
            lines += await self._message_lines(_as_list(messages))
        files, basis = await asyncio.to_thread(_files_of, given.get("attachments"), call.context)
        if not (lines or files):
            return None
        return Allowed(preview="\n".join(lines) or None, basis=basis, files=files)

    # -- parts --------------------------------------------------------------------------

    async def _get(self, message: str, **query: Any) -> dict[str, Any]:
        return await self.transport.json(
            Request("read a message", "GET", f"{_ME}/messages/{segment(message)}", query=query)
        )

    async def _lines(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """Return the messages that still exist, for a list."""
        found = await asyncio.gather(*map(self._line, ids))
        return [item for item in found if item is not None]

    async def _line(self, message: str) -> dict[str, Any] | None:
        query = {"metadataHeaders": _LINE_HEADERS, "fields": _LINE_FIELDS}
        try:
            return await self._get(message, format="metadata", **query)
        except GoogleError as error:
            if error.status not in (404, 410):
                raise
            return None

    async def _fetch_large_texts(self, resource: dict[str, Any]) -> None:
        """Fetch the texts of a message that were too large to be sent with the message."""
        for body in texts_elsewhere(resource.get("payload") or {}):
            self._check_size("the text", int(body.get("size") or 0))
            body["data"] = await self._attachment(str(resource["id"]), str(body["attachmentId"]))

    async def _content(self, message: str, part: Part) -> bytes:
        if part.attachment_id is None:
            return unbase64(part.data or "")
        self._check_size(part.name, part.size)
        data = await self._attachment(message, part.attachment_id)
        return await asyncio.to_thread(unbase64, data)

    def _check_size(self, what: str, size: int) -> None:
        most = self.settings.max_bytes
        if size > most:
            raise ToolRefusedError(f"{what} has {size:,} bytes; at most {most:,} are read")

    async def _attachment(self, message: str, key: str) -> str:
        found = await self.transport.json(
            Request(
                "read an attachment",
                "GET",
                f"{_ME}/messages/{segment(message)}/attachments/{segment(key)}",
                max_bytes=2 * self.settings.max_bytes,
            )
        )
        return str(found.get("data") or "")

    async def _labels(self) -> list[dict[str, Any]]:
        found = await self.transport.json(Request("list labels", "GET", f"{_ME}/labels"))
        return found.get("labels") or []

    async def _label_names(
        self, resources: Sequence[dict[str, Any]]
    ) -> Callable[[dict[str, Any]], list[str]]:
        """Return a function that names a message's labels; Gmail is asked only for own labels."""
        ids = {key for item in resources for key in item.get("labelIds") or ()}
        own = any(key.startswith("Label_") for key in ids)
        listed = await self._labels() if own else []
        names: dict[str, str] = {item["id"]: item["name"] for item in listed}

        def names_of(item: dict[str, Any]) -> list[str]:
            ids: list[str] = item.get("labelIds") or []
            return [names.get(key, key) for key in ids]

        return names_of

    async def _files(
        self, attachments: Sequence[Attachment | str] | None, context: CallContext | None
    ) -> list[Attachment]:
        """Return attachments with their content; a name refers to a file of the task."""
        found: list[Attachment] = []
        for item in attachments or ():
            if isinstance(item, str):
                read = asyncio.to_thread(read_task_file, context, item, MAX_BYTES)
                name, data = await read
                found.append(Attachment(name=name, data=data))
            else:
                found.append(item)
        return found

    async def _answer(
        self,
        message: str,
        text: str,
        html: str | None,
        attachments: Sequence[Attachment],
        *,
        everyone: bool = False,
    ) -> tuple[bytes, str]:
        """Build a reply; return it with its conversation."""
        old, headers, to, cc = await self._correspondents(message, everyone=everyone)
        subject = headers.get("subject", "")
        own_id = headers.get("message-id", "")
        more: dict[str, str] = {}
        if own_id:
            more["In-Reply-To"] = own_id
            more["References"] = f"{headers.get('references', '')} {own_id}".strip()
        raw = await asyncio.to_thread(
            build,
            to=to,
            subject=subject if subject.lower().startswith("re:") else f"Re: {subject}",
            text=text,
            html=html,
            cc=cc,
            attachments=attachments,
            more=more,
        )
        return raw, str(old["threadId"])

    async def _correspondents(
        self, message: str, *, everyone: bool
    ) -> tuple[dict[str, Any], dict[str, str], Sequence[str], Sequence[str]]:
        """Return a message, its headers, the recipients of a reply, and of copies.

        A reply to the user's own message goes to its recipients.
        """
        old = await self._get(message, format="metadata", metadataHeaders=_REPLY_HEADERS)
        payload: dict[str, Any] = old.get("payload") or {}
        to = people_in(payload, "To") if "SENT" in (old.get("labelIds") or ()) else []
        to = to or people_in(payload, "Reply-To") or people_in(payload, "From")
        cc = await self._other_recipients(payload, to) if everyone else ()
        return old, headers_of(payload), to, cc

    async def _reply_lines(self, message: str, *, everyone: bool) -> list[str]:
        _, headers, to, cc = await self._correspondents(message, everyone=everyone)
        lines = [*(f"To: {person}" for person in to), *(f"Cc: {person}" for person in cc)]
        return [*lines, f"In answer to: {headers.get('subject', '')}"]

    async def _message_lines(self, ids: Sequence[str]) -> list[str]:
        found = [line_of(item, ()) for item in await self._lines(ids[:_MAX_SHOWN])]
        shown = [f"{line['sender']}: {line['subject']}" for line in found]
        more = len(ids) - _MAX_SHOWN
        return [*shown, *([f"… and {more} more"] if more > 0 else [])]

    async def _draft_preview(self, draft: str) -> Allowed:
        """Return the current draft; another version has another basis."""
        found = await self.transport.json(
            Request("read a draft", "GET", f"{_ME}/drafts/{segment(draft)}")
        )
        message: dict[str, Any] = found["message"]
        await self._fetch_large_texts(message)
        text = await asyncio.to_thread(draft_text, message)
        return Allowed(preview=text, basis=f"{message['id']}\n{text}")

    async def _other_recipients(self, payload: Resource, to: Sequence[str]) -> list[str]:
        """Return the other recipients of a message, without its sender and the user."""
        profile = await self.transport.json(Request("read the profile", "GET", f"{_ME}/profile"))
        without = {str(profile.get("emailAddress", "")).lower(), *map(str.lower, addresses(to))}
        people = [*people_in(payload, "To"), *people_in(payload, "Cc")]
        return [person for person in people if address(person).lower() not in without]

    async def _send(self, raw: bytes, thread: str | None) -> Sent:
        body = {"threadId": thread} if thread else {}
        made = await self._upload("send a message", f"{_ME}/messages/send", body, raw)
        return Sent(id=str(made["id"]), thread=str(made["threadId"]))

    async def _upload(
        self, what: str, path: str, body: dict[str, Any], raw: bytes
    ) -> dict[str, Any]:
        """Upload content resumably, so that Gmail reports the outcome of a lost answer."""
        request = Request(what, "POST", f"upload/{path}", body=body)
        return await upload(self.transport, request, raw, "message/rfc822")

    async def _post(
        self, what: str, url: str, body: dict[str, Any], *, once: bool = False
    ) -> dict[str, Any]:
        method: Method = "POST"
        return await self.transport.json(Request(what, method, url, body=body, once=once))

    async def _make_label(self, name: str) -> str:
        """Return the id of a label, made here or concurrently."""
        try:
            made = await self._post("make a label", f"{_ME}/labels", {"name": name})
        except GoogleError as error:
            if error.status != 409:
                raise
            listed = await self._labels()
            found = [item for item in listed if str(item["name"]).lower() == name.lower()]
            if not found:
                raise
            made = found[0]
        return str(made["id"])

    async def _change(self, ids: Sequence[str], body: dict[str, Any]) -> Changed:
        for start in range(0, len(ids), _MAX_CHANGED):
            some = list(ids[start : start + _MAX_CHANGED])
            await self._post("change labels", f"{_ME}/messages/batchModify", {"ids": some, **body})
        return Changed(changed=len(ids))


def _files_of(
    attachments: Sequence[Attachment | str] | None, context: CallContext | None
) -> tuple[dict[str, int], str | None]:
    """Return the sizes of the attachments, and a digest of the task's files among them."""
    sizes: dict[str, int] = {}
    digest = None
    for item in attachments or ():
        if isinstance(item, str):
            name, data = read_task_file(context, item, MAX_BYTES)
            digest = digest or hashlib.sha256()
            digest.update(f"{len(data)}\n{name}\n".encode() + data)
        else:
            name, given = item["name"], item["data"]
            data = given.encode() if isinstance(given, str) else given
        key, again = name, 2
        while key in sizes:
            key, again = f"{name} ({again})", again + 1
        sizes[key] = len(data)
    return sizes, digest and digest.hexdigest()


def _as_list(given: str | list[str]) -> list[str]:
    return ([given] if given else []) if isinstance(given, str) else list(dict.fromkeys(given))
