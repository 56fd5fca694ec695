"""``Gmail``: a mailbox that a script can search, read, sort and send from."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, TypedDict

from delf import CallContext, action
from delf.errors import DelfError, ToolRefusedError, did_you_mean
from delf.protocols.connection import Allowed, ProposedCall
from delf.types import Trust
from delf_gmail.reading import (
    Mail,
    MessageLine,
    Part,
    Resource,
    checked_mailboxes,
    draft_text,
    files_of,
    headers_of,
    line_of,
    mail_of,
    separate_text_bodies,
    unbase64,
)
from delf_gmail.writing import MAX_BYTES, Attachment, build
from delf_google.addresses import People, address, addresses
from delf_google.connection import GoogleConnection
from delf_google.errors import GoogleError, LostAnswerError
from delf_google.files import read_task_file
from delf_google.requests import Request, segment, utf8
from delf_google.uploads import upload

_ME: Final = "gmail/v1/users/me"
_LINE_FIELDS: Final = "id,threadId,labelIds,snippet,internalDate,payload/headers"
_LINE_HEADERS: Final = ("From", "To", "Subject")
_REPLY_HEADERS: Final = ("From", "To", "Cc", "Reply-To", "Subject", "Message-ID", "References")
_MAX_SEARCH_RESULTS: Final = 500
_MAX_BATCH_MESSAGES: Final = 1000
_MAX_PREVIEWED_MESSAGES: Final = 200


class Found(TypedDict):
    """The messages that a search found; ``notice`` is set if there are more."""

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
    """A label; ``own`` is whether the user made it."""

    id: str
    name: str
    own: bool


class Sent(TypedDict):
    """The ids of a sent message and its thread."""

    id: str
    thread: str


class Draft(TypedDict):
    """A draft; ``send_draft`` takes its ``id``."""

    id: str
    message: str
    thread: str


class Changed(TypedDict):
    """The number of messages that a call changed."""

    changed: int


# The trust level of each field of a mail: strangers write all fields except the ``own`` ones.
_TRUST: Final[Mapping[str, Trust]] = {
    **dict.fromkeys(("id", "thread", "labels", "date", "unread", "notice"), "own"),
    "*": "outside",
}


class _AnsweredMessage(NamedTuple):
    """The data of a message that a reply needs.

    Args:
        thread: The id of the message's thread.
        headers: The headers of the message.
        recipients: The recipients of the reply.
        copy_recipients: The recipients of copies of the reply.
    """

    thread: str
    headers: Mapping[str, str]
    recipients: Sequence[str]
    copy_recipients: Sequence[str]


class Gmail(GoogleConnection):
    """A Gmail mailbox: search, read, label, draft and send mail."""

    root = "https://gmail.googleapis.com/"
    scopes: ClassVar = {
        "reading": "gmail.readonly",
        **dict.fromkeys(("sending", "draft", "organizing"), "gmail.modify"),
    }
    scope_inclusions: ClassVar = {"gmail.modify": frozenset({"gmail.readonly"})}
    summary = "Gmail: a mailbox."

    # -- read ---------------------------------------------------------------------------

    @action("reading", effect="read", trust=_TRUST)
    async def search(self, query: str = "", limit: int = 20) -> Found:
        """Messages that match a query in Gmail's own syntax (`from:ada has:attachment newer_than:7d
        is:unread in:inbox`), the newest first; at most 500.
        """  # noqa: D205 - the model reads the whole paragraph
        if not 1 <= limit <= _MAX_SEARCH_RESULTS:
            raise ToolRefusedError(
                f"limit can be from 1 to {_MAX_SEARCH_RESULTS}; narrow the query instead"
            )
        # One message more than the limit shows whether there are more.
        listing = Request(
            "search messages",
            "GET",
            f"{_ME}/messages",
            query={"q": query or None, "maxResults": min(limit + 1, _MAX_SEARCH_RESULTS)},
        )
        ids: list[str] = []
        has_more = False
        async for item in self.transport.pages(listing, "messages"):
            if len(ids) == limit:
                has_more = True
                break
            ids.append(str(item["id"]))
        resources = await self._existing_messages(ids)
        labels_of = await self._label_lookup(resources)
        return Found(
            messages=[line_of(item, labels_of(item)) for item in resources],
            notice=f"these are the first {limit}; there are more" if has_more else None,
        )

    @action("reading", effect="read", trust=_TRUST, author="verified_sender")
    async def read(self, message: str) -> Mail:
        """A message by its id: people, subject, text (HTML reduced to text), attachments."""
        resource = await self._get(message)
        await self._fetch_large_texts(resource)
        labels_of = await self._label_lookup([resource])
        return await asyncio.to_thread(mail_of, resource, labels_of(resource))

    @action("reading", effect="read", trust=_TRUST, author="verified_sender")
    async def thread(self, thread: str) -> Thread:
        """A conversation with all its messages, the oldest first."""
        conversation = await self.transport.json(
            Request("read a conversation", "GET", f"{_ME}/threads/{segment(thread)}")
        )
        resources: list[dict[str, Any]] = conversation.get("messages") or []
        for item in resources:
            await self._fetch_large_texts(item)
        labels_of = await self._label_lookup(resources)
        mails = [await asyncio.to_thread(mail_of, item, labels_of(item)) for item in resources]
        subject = mails[0]["subject"] if mails else ""
        return Thread(id=str(conversation["id"]), subject=subject, messages=mails)

    @action("reading", effect="read")
    async def attachment(self, message: str, name: str) -> FileData:
        """An attachment's content as bytes, by its name or its `part`."""
        parts = files_of((await self._get(message)).get("payload") or {})
        matching = [part for part in parts if part.number == name]
        if not matching:
            matching = [part for part in parts if part.name == name]
        if not matching:
            attachment_names = [part.name for part in parts]
            raise ToolRefusedError(
                f"message {message} has no attachment {name[:200]!r}; "
                f"attachments: {', '.join(attachment_names) or 'none'}"
                f"{did_you_mean(name, attachment_names)}"
            )
        if len(matching) > 1:
            parts_text = ", ".join(each.number for each in matching)
            raise ToolRefusedError(
                f"message {message} has several attachments {name[:200]!r}; name one by its part: "
                f"{parts_text}"
            )
        part = matching[0]
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
        files = await self._load_attachments(attachments, context)
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
        """Answer the sender of a message in its conversation; with `everyone`, all who got it."""
        files = await self._load_attachments(attachments, context)
        raw, thread = await self._build_reply(message, text, html, files, everyone=everyone)
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
        files = await self._load_attachments(attachments, context)
        if reply_to is not None:
            if to or subject or cc or bcc:
                raise ToolRefusedError("with reply_to, leave out people and subject")
            raw, thread = await self._build_reply(reply_to, text, html, files)
        else:
            thread = None
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
        body = {"message": {"threadId": thread} if thread else {}}
        created = await self._upload("write a draft", f"{_ME}/drafts", body, raw)
        message_ids: dict[str, Any] = created.get("message") or {}
        return Draft(
            id=str(created["id"]),
            message=str(message_ids["id"]),
            thread=str(message_ids["threadId"]),
        )

    # The draft decides what is sent, so its id must not come from other people's texts. The result
    # can be trusted, because it has only ids that Gmail made.
    @action("sending", effect="irreversible", trust="own", sinks=["draft"])
    async def send_draft(self, draft: str) -> Sent:
        """Send a draft as it is, by its id."""
        created = await self._post("send a draft", f"{_ME}/drafts/send", {"id": draft}, once=True)
        return Sent(id=str(created["id"]), thread=str(created["threadId"]))

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
        adding = _distinct(add)
        removing = _distinct(remove)
        if not adding and not removing:
            raise ToolRefusedError("name labels to add or to remove")
        label_ids = {str(item["name"]).lower(): str(item["id"]) for item in await self._labels()}
        for name in removing:
            if name.lower() not in label_ids:
                raise ToolRefusedError(f"there is no label {name!r}{did_you_mean(name, label_ids)}")
        for name in adding:
            if name.lower() not in label_ids:
                label_ids[name.lower()] = await self._create_label(name)
        body = {
            "addLabelIds": [label_ids[name.lower()] for name in adding],
            "removeLabelIds": [label_ids[name.lower()] for name in removing],
        }
        return await self._change(_distinct(messages), body)

    @action("organizing", effect="write", trust="own", sinks=["messages"])
    async def archive(self, messages: str | list[str]) -> Changed:
        """Take messages out of the inbox; they stay in the mailbox."""
        return await self._change(_distinct(messages), {"removeLabelIds": ["INBOX"]})

    @action("organizing", effect="write", trust="own", sinks=["messages"])
    async def trash(self, messages: str | list[str]) -> Changed:
        """Move messages to the trash, from which Gmail deletes them after 30 days."""
        ids = _distinct(messages)
        paths = [f"{_ME}/messages/{segment(key)}/trash" for key in ids]
        # Move the other messages even after a failure, so that the number of moved messages is
        # known.
        results = await asyncio.gather(
            *(self._post("trash a message", path, {}) for path in paths), return_exceptions=True
        )
        errors = [result for result in results if isinstance(result, BaseException)]
        if errors:
            raise _trash_error(errors, len(ids))
        return Changed(changed=len(ids))

    async def preview(self, call: ProposedCall) -> Allowed | None:
        """Preview the recipients of a reply, the messages to change, or the text of a draft."""
        arguments = call.arguments
        if call.action == "send_draft":
            return await self._draft_preview(str(arguments["draft"]))
        lines: list[str] = []
        if call.action == "reply":
            answered_message = arguments.get("message")
        else:
            answered_message = arguments.get("reply_to")
        if answered_message is not None:
            lines += await self._reply_lines(
                str(answered_message), everyone=bool(arguments.get("everyone"))
            )
        messages: Any = arguments.get("messages")
        if messages:
            lines += await self._message_lines(_distinct(messages))
        files, attachments_digest = await asyncio.to_thread(
            _sizes_and_digest, arguments.get("attachments"), call.context
        )
        if not (lines or files):
            return None
        return Allowed(preview="\n".join(lines) or None, basis=attachments_digest, files=files)

    # -- parts --------------------------------------------------------------------------

    async def _get(self, message: str, **query: Any) -> dict[str, Any]:
        return await self.transport.json(
            Request("read a message", "GET", f"{_ME}/messages/{segment(message)}", query=query)
        )

    async def _existing_messages(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """Return the metadata of messages; leave out messages that no longer exist."""
        messages = await asyncio.gather(*map(self._message_or_none, ids))
        return [message for message in messages if message is not None]

    async def _message_or_none(self, message: str) -> dict[str, Any] | None:
        query = {"metadataHeaders": _LINE_HEADERS, "fields": _LINE_FIELDS}
        try:
            return await self._get(message, format="metadata", **query)
        except GoogleError as error:
            if error.status not in (404, 410):
                raise
            return None

    async def _fetch_large_texts(self, resource: dict[str, Any]) -> None:
        """Download the large texts that Gmail left out of a message; add them to ``resource``."""
        for body in separate_text_bodies(resource.get("payload") or {}):
            self._check_size("the text", int(body.get("size") or 0))
            body["data"] = await self._attachment(str(resource["id"]), str(body["attachmentId"]))

    async def _content(self, message: str, part: Part) -> bytes:
        if part.attachment_id is None:
            return unbase64(part.data or "")
        self._check_size(part.name, part.size)
        data = await self._attachment(message, part.attachment_id)
        return await asyncio.to_thread(unbase64, data)

    def _check_size(self, what: str, size: int) -> None:
        max_bytes = self.settings.max_bytes
        if size > max_bytes:
            raise ToolRefusedError(f"{what} has {size:,} bytes; at most {max_bytes:,} are read")

    async def _attachment(self, message: str, attachment_id: str) -> str:
        """Return the content of an attachment in base64."""
        attachment = await self.transport.json(
            Request(
                "read an attachment",
                "GET",
                f"{_ME}/messages/{segment(message)}/attachments/{segment(attachment_id)}",
                max_bytes=2 * self.settings.max_bytes,  # base64 makes the content longer
            )
        )
        return str(attachment.get("data") or "")

    async def _labels(self) -> list[dict[str, Any]]:
        response = await self.transport.json(Request("list labels", "GET", f"{_ME}/labels"))
        return response.get("labels") or []

    async def _label_lookup(
        self, resources: Sequence[dict[str, Any]]
    ) -> Callable[[dict[str, Any]], list[str]]:
        """Return a function that returns the names of a message's labels.

        The labels are fetched only if a message has a label that the user made.
        """
        label_ids = {key for item in resources for key in item.get("labelIds") or ()}
        has_user_label = any(key.startswith("Label_") for key in label_ids)
        labels = await self._labels() if has_user_label else []
        names: dict[str, str] = {item["id"]: item["name"] for item in labels}

        def names_of(item: dict[str, Any]) -> list[str]:
            ids: list[str] = item.get("labelIds") or []
            return [names.get(key, key) for key in ids]

        return names_of

    async def _load_attachments(
        self, attachments: Sequence[Attachment | str] | None, context: CallContext | None
    ) -> list[Attachment]:
        """Return attachments with their content; a plain name means a file of the task."""
        loaded: list[Attachment] = []
        for item in attachments or ():
            if isinstance(item, str):
                name, data = await asyncio.to_thread(read_task_file, context, item, MAX_BYTES)
                loaded.append(Attachment(name=name, data=data))
            else:
                loaded.append(item)
        return loaded

    async def _build_reply(
        self,
        message: str,
        text: str,
        html: str | None,
        attachments: Sequence[Attachment],
        *,
        everyone: bool = False,
    ) -> tuple[bytes, str]:
        """Return an encoded reply to a message, and the id of its thread."""
        original = await self._answered_message(message, everyone=everyone)
        headers = original.headers
        subject = " ".join(headers.get("subject", "").split())  # may contain line breaks
        original_id = headers.get("message-id", "")
        reply_headers: dict[str, str] = {}
        if original_id:
            reply_headers["In-Reply-To"] = original_id
            reply_headers["References"] = f"{headers.get('references', '')} {original_id}".strip()
        raw = await asyncio.to_thread(
            build,
            to=original.recipients,
            subject=subject if subject.lower().startswith("re:") else f"Re: {subject}",
            text=text,
            html=html,
            cc=original.copy_recipients,
            attachments=attachments,
            extra_headers=reply_headers,
        )
        return raw, original.thread

    async def _answered_message(self, message: str, *, everyone: bool) -> _AnsweredMessage:
        """Return the data of a message that a reply needs, with the recipients of the reply.

        A reply to a message that the user sent goes to the recipients of that message.
        """
        original = await self._get(message, format="metadata", metadataHeaders=_REPLY_HEADERS)
        payload: dict[str, Any] = original.get("payload") or {}
        is_sent_by_user = "SENT" in (original.get("labelIds") or ())
        to = checked_mailboxes(payload, "To") if is_sent_by_user else []
        if not to:
            to = checked_mailboxes(payload, "Reply-To") or checked_mailboxes(payload, "From")
        cc = await self._other_recipients(payload, to) if everyone else ()
        return _AnsweredMessage(str(original["threadId"]), headers_of(payload), to, cc)

    async def _reply_lines(self, message: str, *, everyone: bool) -> list[str]:
        """Return a reply's recipients and the answered message's subject as lines for a preview."""
        original = await self._answered_message(message, everyone=everyone)
        lines = [f"To: {person}" for person in original.recipients]
        lines += [f"Cc: {person}" for person in original.copy_recipients]
        lines.append(f"In answer to: {original.headers.get('subject', '')}")
        return lines

    async def _message_lines(self, ids: Sequence[str]) -> list[str]:
        """Return the senders and subjects of the first messages as lines for a preview."""
        messages = [
            line_of(item, ())
            for item in await self._existing_messages(ids[:_MAX_PREVIEWED_MESSAGES])
        ]
        lines = [f"{message['sender']}: {message['subject']}" for message in messages]
        omitted_count = len(ids) - _MAX_PREVIEWED_MESSAGES
        if omitted_count > 0:
            lines.append(f"… and {omitted_count} more")
        return lines

    async def _draft_preview(self, draft: str) -> Allowed:
        """Return the preview of a draft.

        An approval counts only while the preview's ``basis`` is the same. Gmail gives a changed
        draft a new message id, which is part of the ``basis``.
        """
        resource = await self.transport.json(
            Request("read a draft", "GET", f"{_ME}/drafts/{segment(draft)}")
        )
        message: dict[str, Any] = resource["message"]
        await self._fetch_large_texts(message)
        text = await asyncio.to_thread(draft_text, message)
        return Allowed(preview=text, basis=f"{message['id']}\n{text}")

    async def _other_recipients(self, payload: Resource, to: Sequence[str]) -> list[str]:
        """Return the recipients of a message, except the user and the addresses in ``to``."""
        profile = await self.transport.json(Request("read the profile", "GET", f"{_ME}/profile"))
        excluded = {str(profile.get("emailAddress", "")).lower(), *map(str.lower, addresses(to))}
        people = [*checked_mailboxes(payload, "To"), *checked_mailboxes(payload, "Cc")]
        return [person for person in people if address(person).lower() not in excluded]

    async def _send(self, raw: bytes, thread: str | None) -> Sent:
        body = {"threadId": thread} if thread else {}
        created = await self._upload("send a message", f"{_ME}/messages/send", body, raw)
        return Sent(id=str(created["id"]), thread=str(created["threadId"]))

    async def _upload(
        self, what: str, path: str, body: dict[str, Any], raw: bytes
    ) -> dict[str, Any]:
        """Upload a message in a resumable upload.

        The outcome of a resumable upload is known even after a lost response.
        """
        request = Request(what, "POST", f"upload/{path}", body=body)
        return await upload(self.transport, request, raw, "message/rfc822")

    async def _post(
        self, what: str, url: str, body: dict[str, Any], *, once: bool = False
    ) -> dict[str, Any]:
        return await self.transport.json(Request(what, "POST", url, body=body, send_once=once))

    async def _create_label(self, name: str) -> str:
        """Create a label, or use one that was created concurrently; return its id."""
        try:
            created = await self._post("make a label", f"{_ME}/labels", {"name": name})
        except GoogleError as error:
            if error.status != 409:
                raise
            labels = await self._labels()
            same_name = [item for item in labels if str(item["name"]).lower() == name.lower()]
            if not same_name:
                raise
            created = same_name[0]
        return str(created["id"])

    async def _change(self, ids: Sequence[str], body: dict[str, Any]) -> Changed:
        for start in range(0, len(ids), _MAX_BATCH_MESSAGES):
            batch = list(ids[start : start + _MAX_BATCH_MESSAGES])
            await self._post("change labels", f"{_ME}/messages/batchModify", {"ids": batch, **body})
        return Changed(changed=len(ids))


def _trash_error(errors: Sequence[BaseException], message_count: int) -> BaseException:
    """Return the error for messages that stay out of the trash, with the number of moved messages.

    Args:
        errors: The errors of the messages that were not moved, or whose answer was lost.
        message_count: The number of all messages.
    """
    lost_answers = [error for error in errors if isinstance(error, LostAnswerError)]
    # Report a lost answer first: its message may be in the trash, and the caller has to check.
    error = lost_answers[0] if lost_answers else errors[0]
    has_moved_none = len(errors) == message_count and not lost_answers
    if has_moved_none or not isinstance(error, DelfError):
        return error
    moved_count = message_count - len(errors)
    at_least = "at least " if lost_answers else ""
    text = f"{error.message}; {at_least}{moved_count} of {message_count} messages are in the trash"
    if not isinstance(error, GoogleError):  # such as a failed login
        return GoogleError(text, hint=error.hint)
    return type(error)(text, status=error.status, reason=error.reason, hint=error.hint)


def _sizes_and_digest(
    attachments: Sequence[Attachment | str] | None, context: CallContext | None
) -> tuple[dict[str, int], str | None]:
    """Return the sizes of attachments by name, and a digest of those that are files of the task.

    The digest is None if no attachment is a file of the task.
    """
    sizes: dict[str, int] = {}
    digest = None
    for item in attachments or ():
        if isinstance(item, str):
            name, data = read_task_file(context, item, MAX_BYTES)
            digest = digest or hashlib.sha256()
            digest.update(f"{len(data)}\n{name}\n".encode() + data)
        else:
            name = item["name"]
            content = item["data"]
            data = utf8(content, "an attachment") if isinstance(content, str) else content
        sizes[_unused_name(name, sizes)] = len(data)
    return sizes, None if digest is None else digest.hexdigest()


def _unused_name(name: str, used: Collection[str]) -> str:
    """Return a file name unchanged, or with a number if it is used already: ``a.pdf (2)``."""
    unused = name
    number = 2
    while unused in used:
        unused = f"{name} ({number})"
        number += 1
    return unused


def _distinct(given: str | list[str]) -> list[str]:
    """Return one or several texts as a list without repetitions; no texts for an empty text."""
    if isinstance(given, str):
        return [given] if given else []
    return list(dict.fromkeys(given))
