"""The server is trusted because the vendor's own client drives it: every method that delf uses."""

from __future__ import annotations

import base64
import email.message
import io
from typing import Any

import pytest
from googleapiclient.errors import HttpError
from googleapiclient.http import MediaInMemoryUpload, MediaIoBaseDownload

from support.google import GoogleServer
from support.google.fixtures import ALL, USER
from support.google.vendor import Vendor

FOLDER = "application/vnd.google-apps.folder"


def mail(subject: str, to: str = "bob@example.com", **headers: str) -> bytes:
    message = email.message.EmailMessage()
    message["From"], message["To"], message["Subject"] = USER, to, subject
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    message.set_content("Hello")
    message.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="a.pdf")
    return message.as_bytes()


def raw(data: bytes) -> dict[str, str]:
    return {"raw": base64.urlsafe_b64encode(data).decode()}


def test_gmail(google: GoogleServer, vendor: Vendor) -> None:
    google.gmail.box("bob@example.com")
    users = vendor("gmail").users()
    messages = users.messages()
    assert users.getProfile(userId="me").execute()["emailAddress"] == USER
    sent = messages.send(userId="me", body=raw(mail("One"))).execute()
    media = MediaInMemoryUpload(mail("Two"), "message/rfc822", resumable=True)
    messages.send(userId="me", body={"threadId": sent["threadId"]}, media_body=media).execute()
    google.gmail.deliver(USER, mail("Three", to=USER))
    found = messages.list(userId="me", q="subject:three has:attachment", maxResults=5).execute()
    (one,) = found["messages"]
    got = messages.get(userId="me", id=one["id"]).execute()
    part = got["payload"]["parts"][1]
    data = (
        messages.attachments()
        .get(userId="me", messageId=one["id"], id=part["body"]["attachmentId"])
        .execute()
    )
    assert base64.urlsafe_b64decode(data["data"]) == b"%PDF"
    thread = users.threads().get(userId="me", id=sent["threadId"], format="metadata").execute()
    assert len(thread["messages"]) == 2
    label = users.labels().create(userId="me", body={"name": "Bills"}).execute()
    assert label["id"] in {
        item["id"] for item in users.labels().list(userId="me").execute()["labels"]
    }
    messages.batchModify(
        userId="me", body={"ids": [one["id"]], "addLabelIds": [label["id"]]}
    ).execute()
    assert "TRASH" in messages.trash(userId="me", id=one["id"]).execute()["labelIds"]
    assert "TRASH" not in messages.untrash(userId="me", id=one["id"]).execute()["labelIds"]
    draft = users.drafts().create(userId="me", body={"message": raw(mail("Draft"))}).execute()
    assert users.drafts().get(userId="me", id=draft["id"]).execute()["id"] == draft["id"]
    users.drafts().send(userId="me", body={"id": draft["id"]}).execute()
    assert len(google.gmail.box("bob@example.com").mails) == 3


def test_batches_and_pages(google: GoogleServer, vendor: Vendor) -> None:
    for number in range(7):
        google.gmail.deliver(USER, mail(f"No {number}", to=USER))
    service = vendor("gmail")
    messages = service.users().messages()
    ids: list[str] = []
    request = messages.list(userId="me", maxResults=3)
    while request is not None:
        answer = request.execute()
        ids += [item["id"] for item in answer["messages"]]
        request = messages.list_next(request, answer)
    assert len(set(ids)) == 7
    got: dict[str, Any] = {}
    batch = service.new_batch_http_request(
        callback=lambda key, answer, error: got.update({key: answer or error})
    )
    for key in [*ids, "nowhere"]:
        batch.add(messages.get(userId="me", id=key, format="metadata", metadataHeaders=["Subject"]))
    batch.execute()
    kinds = [type(item).__name__ for item in got.values()]
    assert (kinds.count("dict"), kinds.count("HttpError")) == (7, 1)


def test_drive(google: GoogleServer, vendor: Vendor) -> None:
    service = vendor("drive")
    files = service.files()
    folder = files.create(body={"name": "Bills", "mimeType": FOLDER}).execute()
    content = bytes(range(256)) * 4096  # four chunks
    media = MediaInMemoryUpload(content, "image/png", chunksize=256 * 1024, resumable=True)
    upload = files.create(body={"name": "a.png", "parents": [folder["id"]]}, media_body=media)
    made, steps = None, 0
    while made is None:
        _, made = upload.next_chunk()
        steps += 1
    assert steps == 4
    small = MediaInMemoryUpload(b"hello world", "text/plain")
    text = files.create(body={"name": "hello.txt"}, media_body=small, fields="id,size").execute()
    assert text["size"] == "11"
    query = f"'{folder['id']}' in parents and trashed = false and name contains 'a'"
    (listed,) = files.list(q=query, fields="files(id,name,size),nextPageToken").execute()["files"]
    assert listed == {"id": made["id"], "name": "a.png", "size": str(len(content))}
    out = io.BytesIO()
    loader = MediaIoBaseDownload(out, files.get_media(fileId=made["id"]))
    while not loader.next_chunk()[1]:
        pass
    assert out.getvalue() == content
    moved = files.update(
        fileId=text["id"],
        addParents=folder["id"],
        removeParents=google.drive.root.id,
        body={"name": "b.txt"},
        fields="name,parents",
    ).execute()
    assert moved == {"name": "b.txt", "parents": [folder["id"]]}
    permissions = service.permissions()
    body = {"type": "user", "role": "reader", "emailAddress": "bob@example.com"}
    shared = permissions.create(fileId=made["id"], body=body, emailMessage="look").execute()
    listed = permissions.list(
        fileId=made["id"], fields="permissions(id,role,emailAddress)"
    ).execute()
    assert len(listed["permissions"]) == 2
    permissions.delete(fileId=made["id"], permissionId=shared["id"]).execute()
    assert files.copy(fileId=text["id"], body={"name": "c.txt"}).execute()["name"] == "c.txt"
    google.drive.drives["0Ashared"] = "Team"
    assert service.drives().list(pageSize=5).execute()["drives"][0]["name"] == "Team"
    document = vendor("docs").documents().create(body={"title": "Notes"}).execute()
    assert files.export(fileId=document["documentId"], mimeType="text/plain").execute() == b"\n"
    files.update(fileId=made["id"], body={"trashed": True}).execute()
    files.delete(fileId=made["id"]).execute()
    with pytest.raises(HttpError) as caught:
        files.get(fileId=made["id"]).execute()
    assert caught.value.status_code == 404


def test_sheets(google: GoogleServer, vendor: Vendor) -> None:
    books = vendor("sheets").spreadsheets()
    book = books.create(body={"properties": {"title": "Bills"}}).execute()
    key = book["spreadsheetId"]
    rows = [
        {
            "values": [
                {"userEnteredValue": {"stringValue": "net"}},
                {"userEnteredValue": {"numberValue": 3.5}},
            ]
        },
        {
            "values": [
                {"userEnteredValue": {"boolValue": True}},
                {"userEnteredValue": {"formulaValue": "=B1*2"}},
            ]
        },
    ]
    batch = [
        {"updateCells": {"start": {"sheetId": 0}, "rows": rows, "fields": "userEnteredValue"}},
        {"appendCells": {"sheetId": 0, "rows": rows[:1], "fields": "userEnteredValue"}},
        {"addSheet": {"properties": {"title": "More"}}},
        {"appendDimension": {"sheetId": 0, "dimension": "ROWS", "length": 5}},
    ]
    answer = books.batchUpdate(spreadsheetId=key, body={"requests": batch}).execute()
    assert answer["replies"][2]["addSheet"]["properties"]["title"] == "More"
    got = books.get(
        spreadsheetId=key,
        ranges=["Sheet1!A1:B3"],
        fields="sheets.data.rowData.values.effectiveValue",
    ).execute()
    cells = [
        [c.get("effectiveValue") for c in row["values"]]
        for row in got["sheets"][0]["data"][0]["rowData"]
    ]
    assert cells[1] == [{"boolValue": True}, {"numberValue": 7.0}]
    assert cells[2][0] == {"stringValue": "net"}
    with pytest.raises(HttpError, match="Unknown name"):
        books.batchUpdate(spreadsheetId=key, body={"requests": [{"updateCell": {}}]}).execute()
    with pytest.raises(HttpError, match="int32"):
        books.batchUpdate(
            spreadsheetId=key, body={"requests": [{"deleteSheet": {"sheetId": "0"}}]}
        ).execute()


def test_docs(google: GoogleServer, vendor: Vendor) -> None:
    documents = vendor("docs").documents()
    key = documents.create(body={"title": "Notes"}).execute()["documentId"]
    requests = [
        {"insertText": {"location": {"index": 1}, "text": "😀 Title\nBody\n"}},
        {
            "updateParagraphStyle": {
                "range": {"startIndex": 1, "endIndex": 9},
                "paragraphStyle": {"namedStyleType": "HEADING_1"},
                "fields": "namedStyleType",
            }
        },
        {"insertTable": {"location": {"index": 15}, "rows": 2, "columns": 2}},
        {"insertText": {"location": {"index": 19}, "text": "cell"}},
    ]
    documents.batchUpdate(documentId=key, body={"requests": requests}).execute()
    content = documents.get(documentId=key).execute()["body"]["content"]
    heading = content[1]
    assert (heading["startIndex"], heading["endIndex"]) == (1, 10)  # the emoji counts twice
    table = next(item for item in content if "table" in item)
    cell = table["table"]["tableRows"][0]["tableCells"][0]["content"][0]
    assert cell["paragraph"]["elements"][0]["textRun"]["content"] == "cell\n"
    assert cell["startIndex"] == table["startIndex"] + 3
    with pytest.raises(HttpError, match="surrogate"):
        documents.batchUpdate(
            documentId=key,
            body={"requests": [{"insertText": {"location": {"index": 2}, "text": "x"}}]},
        ).execute()
    files = vendor("drive").files()
    assert files.update(fileId=key, body={"trashed": True}).execute()["id"] == key
    files.delete(fileId=key).execute()
    assert key not in google.docs.documents


def test_calendar(google: GoogleServer, vendor: Vendor) -> None:
    service = vendor("calendar")
    events = service.events()
    assert service.calendarList().list().execute()["items"][0]["primary"]
    zone = {"timeZone": "Europe/Berlin"}
    body = {
        "summary": "Weekly",
        "start": {"dateTime": "2026-03-23T09:00:00", **zone},
        "end": {"dateTime": "2026-03-23T09:30:00", **zone},
        "recurrence": ["RRULE:FREQ=WEEKLY;COUNT=3"],
        "attendees": [{"email": "bob@example.com"}],
    }
    made = events.insert(calendarId="primary", body=body, sendUpdates="all").execute()
    window = {"timeMin": "2026-03-01T00:00:00Z", "timeMax": "2026-05-01T00:00:00Z"}
    found = events.list(
        calendarId="primary", singleEvents=True, orderBy="startTime", **window
    ).execute()["items"]
    # summer time begins in between; the hour on the wall stays
    assert [item["start"]["dateTime"][10:] for item in found] == [
        "T09:00:00+01:00",
        "T09:00:00+02:00",
        "T09:00:00+02:00",
    ]
    assert (
        events.get(calendarId="primary", eventId=found[1]["id"]).execute()["recurringEventId"]
        == made["id"]
    )
    events.patch(calendarId="primary", eventId=made["id"], body={"location": "Room 1"}).execute()
    busy = (
        service.freebusy()
        .query(body={**window, "items": [{"id": "primary"}, {"id": "nobody"}]})
        .execute()
    )
    assert len(busy["calendars"]["primary"]["busy"]) == 3
    assert busy["calendars"]["nobody"]["errors"]
    events.delete(calendarId="primary", eventId=made["id"], sendUpdates="all").execute()
    assert [what for _, what, _ in google.calendar.mails] == ["invitation", "cancellation"]


def test_logins(google: GoogleServer, vendor: Vendor) -> None:
    from google.auth.exceptions import RefreshError
    from google.oauth2 import service_account

    info = google.logins.service_account(google.url)
    robot = service_account.Credentials.from_service_account_info(
        info, scopes=ALL, subject="bob@example.com"
    )
    users = vendor("gmail", credentials=robot).users()
    assert users.getProfile(userId="me").execute()["emailAddress"] == "bob@example.com"
    forged = {**info, "private_key": google.logins.service_account(google.url)["private_key"]}
    wrong = service_account.Credentials.from_service_account_info(forged, scopes=ALL)
    with pytest.raises(RefreshError, match="Invalid JWT"):
        vendor("gmail", credentials=wrong).users().getProfile(userId="me").execute()
    narrow = vendor("gmail", scopes=[ALL[1]]).users()
    with pytest.raises(HttpError, match="insufficient authentication scopes"):
        narrow.getProfile(userId="me").execute()
    service = vendor("gmail").users()
    service.getProfile(userId="me").execute()
    google.logins.expire_all()
    service.getProfile(userId="me").execute()  # refreshed
    google.logins.revoke_all()
    with pytest.raises(RefreshError, match="revoked"):
        service.getProfile(userId="me").execute()


def test_faults(google: GoogleServer, vendor: Vendor) -> None:
    users = vendor("gmail").users()
    google.fail("gmail.users.getProfile", 429, "rateLimitExceeded", times=2)
    with pytest.raises(HttpError):
        users.getProfile(userId="me").execute()
    assert users.getProfile(userId="me").execute(num_retries=1)["emailAddress"] == USER
    with pytest.raises(HttpError, match="Unknown name"):
        users.messages().send(userId="me", body={"raw": "eA==", "colour": "red"}).execute()
    assert {item.agent for item in google.seen if item.method.startswith("gmail")} == {"vendor"}
