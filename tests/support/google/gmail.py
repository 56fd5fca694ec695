"""Mailboxes: messages as they came in, labels, threads, drafts, and delivery between users."""

from __future__ import annotations

import base64
import datetime as dt
import email
import email.policy
import functools
import re
import shlex
import time
from dataclasses import dataclass, field
from email.message import Message
from email.utils import getaddresses, make_msgid
from typing import Any

from support.google.calls import ApiError, Call, Ids, page, serves

SYSTEM = ("INBOX", "SENT", "DRAFT", "TRASH", "SPAM", "UNREAD", "STARRED", "IMPORTANT")
LARGE = 200_000
ADDRESS = re.compile(r"[^@\s<>,;]+@[^@\s<>,;]+$")


@dataclass
class Mail:
    """A message in a mailbox."""

    id: str
    thread: str
    raw: bytes
    labels: set[str]
    date: int  # ms

    @functools.cached_property
    def parsed(self) -> Message:
        return email.message_from_bytes(self.raw, policy=email.policy.compat32)

    def header(self, name: str) -> str:
        return _clean(self.parsed.get(name, ""))

    @functools.cached_property
    def words(self) -> str:
        texts = [self.header(name) for name in ("From", "To", "Cc", "Subject")]
        texts += [
            bytes(part.get_payload(decode=True) or b"").decode("utf-8", "replace")
            for part in self.parsed.walk()
            if part.get_content_maintype() == "text"
        ]
        return " ".join(texts).lower()

    @property
    def files(self) -> list[str]:
        return [
            _clean(part.get_filename() or "") for part in self.parsed.walk() if part.get_filename()
        ]


@dataclass
class Mailbox:
    mails: dict[str, Mail] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)  # names by id
    drafts: dict[str, str] = field(default_factory=dict)  # message ids by draft id


class GmailService:
    """All users' mailboxes."""

    def __init__(self) -> None:
        self.boxes: dict[str, Mailbox] = {}
        self.ids = Ids()

    def box(self, user: str) -> Mailbox:
        return self.boxes.setdefault(user, Mailbox())

    def deliver(
        self, user: str, raw: bytes, *, labels: Any = ("INBOX", "UNREAD"), when: float | None = None
    ) -> Mail:
        """A message that comes in."""
        return self._put(user, raw, set(labels), None, when)

    def _put(
        self, user: str, raw: bytes, labels: set[str], thread: str | None, when: float | None = None
    ) -> Mail:
        box, key = self.box(user), self.ids.new("m")
        mail = Mail(key, thread or "", raw, labels, int((when or time.time()) * 1000))
        mail.thread = thread or self._thread_of(box, mail) or f"t{key}"
        box.mails[key] = mail
        return mail

    def _thread_of(self, box: Mailbox, mail: Mail) -> str | None:
        refs = f"{mail.header('References')} {mail.header('In-Reply-To')}".split()
        if refs:
            for other in box.mails.values():
                if other.header("Message-ID") in refs:
                    return other.thread
        return None

    # -- reading ------------------------------------------------------------------------

    @serves("gmail.users.getProfile")
    def profile(self, call: Call) -> Any:
        box = self._mine(call)
        return {
            "emailAddress": call.user,
            "messagesTotal": len(box.mails),
            "threadsTotal": len({mail.thread for mail in box.mails.values()}),
            "historyId": "1",
        }

    @serves("gmail.users.messages.list")
    def list(self, call: Call) -> Any:
        found = self._search(self._mine(call), call)
        some, rest = page(found, call, 100, 500)
        answer: dict[str, Any] = {"resultSizeEstimate": len(found), **rest}
        if some:
            answer["messages"] = [{"id": mail.id, "threadId": mail.thread} for mail in some]
        return answer

    @serves("gmail.users.messages.get")
    def get(self, call: Call) -> Any:
        return self._resource(self._mail(call, call["id"]), call)

    @serves("gmail.users.threads.get")
    def thread(self, call: Call) -> Any:
        mails = [mail for mail in self._mine(call).mails.values() if mail.thread == call["id"]]
        if not mails:
            raise ApiError(404, "Requested entity was not found.", "notFound")
        mails.sort(key=lambda mail: mail.date)
        return {
            "id": call["id"],
            "historyId": "1",
            "messages": [self._resource(mail, call) for mail in mails],
        }

    @serves("gmail.users.messages.attachments.get")
    def attachment(self, call: Call) -> Any:
        mail = self._mail(call, call["messageId"])
        for number, part in _numbered(mail.parsed):
            if f"A{mail.id}-{number}" == call["id"]:
                data = bytes(part.get_payload(decode=True) or b"")
                return {"size": len(data), "data": base64.urlsafe_b64encode(data).decode()}
        raise ApiError(404, "Requested entity was not found.", "notFound")

    @serves("gmail.users.labels.list")
    def labels(self, call: Call) -> Any:
        own = self._mine(call).labels
        return {
            "labels": [{"id": name, "name": name, "type": "system"} for name in SYSTEM]
            + [{"id": key, "name": name, "type": "user"} for key, name in own.items()]
        }

    # -- changing -----------------------------------------------------------------------

    @serves("gmail.users.labels.create")
    def create_label(self, call: Call) -> Any:
        box, name = self._mine(call), call.body.get("name", "")
        if not name or name.lower() in {other.lower() for other in (*box.labels.values(), *SYSTEM)}:
            raise ApiError(409 if name else 400, "Label name exists or conflicts", "aborted")
        key = self.ids.new("Label_")
        box.labels[key] = name
        return {"id": key, "name": name, "type": "user"}

    @serves("gmail.users.messages.batchModify")
    def batch_modify(self, call: Call) -> Any:
        ids = call.body.get("ids", [])
        if not ids or len(ids) > 1000:
            raise ApiError(400, "ids: from 1 to 1000", "invalidArgument")
        mails = [self._mail(call, key) for key in ids]
        for mail in mails:
            self._relabel(call, mail)
        return None

    def _relabel(self, call: Call, mail: Mail) -> None:
        add, remove = call.body.get("addLabelIds", []), call.body.get("removeLabelIds", [])
        for label in (*add, *remove):
            if label not in SYSTEM and label not in self._mine(call).labels:
                raise ApiError(400, f"labelId not found: {label}", "invalidArgument")
        mail.labels |= set(add)
        mail.labels -= set(remove)

    @serves("gmail.users.messages.trash")
    def trash(self, call: Call) -> Any:
        mail = self._mail(call, call["id"])
        mail.labels = (mail.labels - {"INBOX"}) | {"TRASH"}
        return self._minimal(mail)

    @serves("gmail.users.messages.send")
    def send(self, call: Call) -> Any:
        return self._minimal(
            self._send(call, self._raw(call, call.body), call.body.get("threadId"))
        )

    @serves("gmail.users.drafts.create")
    def draft(self, call: Call) -> Any:
        message = call.body.get("message", {})
        thread = message.get("threadId")
        self._check_thread(call, thread)
        mail = self._put(call.user, self._raw(call, message), {"DRAFT"}, thread)
        key = self.ids.new("r")
        self._mine(call).drafts[key] = mail.id
        return {"id": key, "message": self._minimal(mail)}

    @serves("gmail.users.drafts.get")
    def read_draft(self, call: Call) -> Any:
        mail = self._draft(call, call["id"])
        return {"id": call["id"], "message": self._resource(mail, call)}

    def rewrite(self, user: str, old: Mail, raw: bytes) -> Mail:
        """Another text for a draft, which is another message."""
        box = self.box(user)
        (name,) = (name for name, key in box.drafts.items() if key == old.id)
        del box.mails[old.id]
        new = self._put(user, raw, {"DRAFT"}, old.thread)
        box.drafts[name] = new.id
        return new

    def _draft(self, call: Call, name: str) -> Mail:
        key = self._mine(call).drafts.get(name)
        if key is None:
            raise ApiError(404, "Requested entity was not found.", "notFound")
        return self._mine(call).mails[key]

    @serves("gmail.users.drafts.send")
    def send_draft(self, call: Call) -> Any:
        box = self._mine(call)
        key = box.drafts.get(call.body.get("id", ""))
        if key is None:
            raise ApiError(404, "Requested entity was not found.", "notFound")
        draft = box.mails[key]
        sent = self._send(call, draft.raw, draft.thread)
        del box.drafts[call.body["id"]], box.mails[key]
        return self._minimal(sent)

    def _raw(self, call: Call, message: dict[str, Any]) -> bytes:
        if call.media is not None:
            return call.media
        text = message.get("raw", "")
        if not text:
            raise ApiError(
                400,
                "'raw' RFC822 payload message string or uploading message via /upload/* URL required",
                "invalidArgument",
            )
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

    def _check_thread(self, call: Call, thread: str | None) -> None:
        if thread and not any(mail.thread == thread for mail in self._mine(call).mails.values()):
            raise ApiError(404, "Requested entity was not found.", "notFound")

    def _send(self, call: Call, raw: bytes, thread: str | None) -> Mail:
        self._check_thread(call, thread)
        parsed = email.message_from_bytes(raw, policy=email.policy.compat32)
        people = [
            a
            for name in ("To", "Cc", "Bcc")
            for _, a in getaddresses([_clean(parsed.get(name, ""))])
            if a
        ]
        if not people:
            raise ApiError(400, "Recipient address required", "invalidArgument")
        for address in people:
            if not ADDRESS.match(address):
                raise ApiError(400, "Invalid To header", "invalidArgument")
        if parsed.get("Message-ID") is None:
            raw = f"Message-ID: {make_msgid(domain='mail.example')}\r\n".encode() + raw
        if parsed.get("From") is None:
            raw = f"From: {call.user}\r\n".encode() + raw
        outgoing = re.sub(rb"(?im)^bcc:.*\r?\n([ \t].*\r?\n)*", b"", raw, count=1)
        for address in dict.fromkeys(people):
            if address in self.boxes and address != call.user:
                self.deliver(address, outgoing)
        labels = {"SENT", "INBOX", "UNREAD"} if call.user in people else {"SENT"}
        return self._put(call.user, raw, labels, thread)

    # -- resources ----------------------------------------------------------------------

    def _mine(self, call: Call) -> Mailbox:
        if call["userId"] not in ("me", call.user):
            raise ApiError(403, f"Delegation denied for {call.user}", "forbidden")
        return self.box(call.user)

    def _mail(self, call: Call, key: str) -> Mail:
        mail = self._mine(call).mails.get(key)
        if mail is None:
            raise ApiError(404, "Requested entity was not found.", "notFound")
        return mail

    def _minimal(self, mail: Mail) -> dict[str, Any]:
        return {"id": mail.id, "threadId": mail.thread, "labelIds": sorted(mail.labels)}

    def _resource(self, mail: Mail, call: Call) -> dict[str, Any]:
        form = call.get("format", "full").lower()
        found = self._minimal(mail) | {
            "snippet": _snippet(mail.parsed),
            "internalDate": str(mail.date),
            "sizeEstimate": len(mail.raw),
            "historyId": "1",
        }
        if form == "raw":
            found["raw"] = base64.urlsafe_b64encode(mail.raw).decode()
        elif form == "metadata":
            names = {name.lower() for name in call.get("metadataHeaders", [])}
            found["payload"] = {
                "mimeType": mail.parsed.get_content_type(),
                "headers": [
                    h for h in _headers(mail.parsed) if not names or h["name"].lower() in names
                ],
            }
        elif form == "full":
            found["payload"] = _payload(mail, mail.parsed, "")
        return found

    # -- search -------------------------------------------------------------------------

    def _search(self, box: Mailbox, call: Call) -> Any:
        wanted = set(call.get("labelIds", []))
        query = call.get("q") or ""
        try:
            terms = shlex.split(query.replace("'", "\\'"))
        except ValueError:
            terms = query.split()
        trash = call.get("includeSpamTrash") or any(
            term in ("in:trash", "in:anywhere", "label:trash") for term in terms
        )
        found = [
            mail
            for mail in box.mails.values()
            if wanted <= mail.labels
            and (trash or not mail.labels & {"TRASH", "SPAM"})
            and all(_matches(mail, box, term) for term in terms)
        ]
        found.sort(key=lambda mail: (mail.date, mail.id), reverse=True)
        return found


def _matches(mail: Mail, box: Mailbox, term: str) -> bool:
    if term.startswith("-"):
        return not _matches(mail, box, term[1:])
    key, colon, value = term.partition(":")
    value = value.lower()
    if not colon and term != "OR":
        return (
            term in ("AND", "OR") or term.lower() in f"{mail.words} {' '.join(mail.files)}".lower()
        )
    if key == "filename":
        return any(value in name.lower() for name in mail.files)
    if key in ("after", "before"):
        day = dt.datetime.strptime(value.replace("-", "/"), "%Y/%m/%d").replace(tzinfo=dt.UTC)
        return (mail.date >= day.timestamp() * 1000) is (key == "after")
    if key in ("newer_than", "older_than"):
        days = int(value[:-1]) * {"d": 1, "m": 30, "y": 365}[value[-1]]
        return (mail.date >= (time.time() - days * 86_400) * 1000) is (key == "newer_than")
    if key in ("from", "to", "subject", "cc"):
        return value in mail.header(key).lower()
    if key == "has":
        return value == "attachment" and bool(mail.files)
    if key in ("label", "in", "is"):
        if value == "anywhere":
            return True
        if value == "read":
            return "UNREAD" not in mail.labels
        own = {box.labels.get(label, label).lower().replace(" ", "-") for label in mail.labels}
        return value.replace(" ", "-") in own
    raise ApiError(400, f"the query {term!r} is not served")


def _numbered(message: Message, number: str = "") -> Any:
    yield number, message
    if message.is_multipart():
        for index, part in enumerate(message.get_payload()):
            yield from _numbered(part, f"{number}.{index}" if number else str(index))


def _payload(mail: Mail, part: Message, number: str) -> dict[str, Any]:
    name = _clean(part.get_filename() or "")
    found: dict[str, Any] = {
        "partId": number,
        "mimeType": part.get_content_type(),
        "filename": name,
        "headers": _headers(part),
        "body": {"size": 0},
    }
    if part.is_multipart():
        children = part.get_payload()
        found["parts"] = [
            _payload(mail, child, f"{number}.{index}" if number else str(index))
            for index, child in enumerate(children)
        ]
        if part.get_content_maintype() == "message" and name:
            found["body"] = {"size": len(bytes(part)), "attachmentId": f"A{mail.id}-{number}"}
        return found
    data = bytes(part.get_payload(decode=True) or b"")
    found["body"] = {"size": len(data)}
    if name or part.get_content_maintype() not in ("text", "multipart") or len(data) > LARGE:
        found["body"]["attachmentId"] = f"A{mail.id}-{number}"
    elif data:
        found["body"]["data"] = base64.urlsafe_b64encode(data).decode()
    return found


def _headers(part: Message) -> list[dict[str, str]]:
    return [{"name": name, "value": _clean(value)} for name, value in part.items()]


def _clean(value: Any) -> str:
    """A header as JSON can carry it."""
    text = re.sub(r"\r?\n[ \t]+", " ", str(value))
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _snippet(message: Message) -> str:
    for part in message.walk():
        if part.get_content_type() == "text/plain":
            text = bytes(part.get_payload(decode=True) or b"")[:400].decode("utf-8", "replace")
            return " ".join(text.split())[:160]
    return ""
