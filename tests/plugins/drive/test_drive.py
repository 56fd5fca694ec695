"""Drive's actions against a server that speaks as Drive does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from delf.errors import ToolRefusedError
from delf.protocols.connection import ProposedCall
from delf.testing import Call, ConnectionContract
from delf_drive import Drive
from delf_google.connection import SCOPE_URL_PREFIX
from delf_google.errors import GoogleError, LostAnswerError
from support.google import GoogleServer
from support.google.drive import FOLDER
from support.google.fixtures import ALL, USER

MB = 1024 * 1024


class TestDrive(ConnectionContract):
    check_refuses = False
    logs_in = False  # tests/libs/google has refused logins, of all services at once
    untested = (
        "download", "create_folder", "copy", "update", "trash", "delete", "unshare", "share",
    )  # fmt: skip
    calls = (
        Call("search", name="plan"),
        Call("get", file="plan.txt"),
        Call("text", file="plan.txt"),
        Call("create", name="new.txt", content="Hello"),
        Call("list_permissions", file="plan.txt"),
    )
    failing_calls = (
        Call("get", file="nowhere.txt"),
        Call("search", kind="nonsense"),
        Call("search", query="nonsense here"),
        Call("share", file="plan.txt", who="nobody"),
        Call("create", name="x", folder="plan.txt"),
    )

    @pytest.fixture
    def connection(self, google: GoogleServer, connect: Any) -> Any:
        google.drive.add("plan.txt", "text/plain", b"The plan")
        return connect(Drive)


@pytest.fixture
async def drive(connect: Any) -> Any:
    made = connect(Drive)
    yield made
    await made.aclose()


async def test_created_file_is_found_and_read(google: GoogleServer, drive: Any) -> None:
    folder = await drive.create_folder("Reports/Q3")
    assert (await drive.create_folder("Reports/Q3"))["id"] == folder[
        "id"
    ]  # one that is there stays
    made = await drive.create("invoice 7.pdf", b"%PDF-7", folder="Reports/Q3")
    assert (made["kind"], made["size"], made["folder"]) == ("pdf", 6, folder["id"])
    assert (await drive.get("Reports/Q3/invoice 7.pdf"))["id"] == made["id"]
    assert (await drive.get(made["link"]))["id"] == made["id"]
    found = await drive.search(name="invoice", folder="Reports/Q3", kind="pdf")
    assert [f["id"] for f in found["files"]] == [made["id"]]
    assert (await drive.download(made["id"]))["data"] == b"%PDF-7"
    with pytest.raises(ToolRefusedError, match="not text in UTF-8"):
        await drive.create("x.bin", b"\xff")
        await drive.text("x.bin")


async def test_file_names_with_quotes_are_found(google: GoogleServer, drive: Any) -> None:
    name = "Ada's \\ plan ' or name contains '"
    made = await drive.create(name, "x")
    assert [f["id"] for f in (await drive.search(name=name))["files"]] == [made["id"]]
    assert (await drive.get(name))["id"] == made["id"]


async def test_search_reports_further_results(google: GoogleServer, drive: Any) -> None:
    for number in range(130):
        google.drive.add(f"note {number}", "text/plain", b"")
    found = await drive.search(name="note", limit=120)
    assert len(found["files"]) == 120
    assert "there are more" in found["notice"]
    assert (await drive.search(name="note", limit=130))["notice"] is None


async def test_editor_documents_are_exported(google: GoogleServer, drive: Any) -> None:
    document = await drive.create("Notes", "# Title", type="document")
    assert document["kind"] == "document"
    assert "Title" in await drive.text(document["id"])
    sheet = await drive.create("Bills", "no,net\n7,9.5\n", type="spreadsheet")
    assert (await drive.text(sheet["id"])).split() == ["no,net", "7,9.5"]
    assert (await drive.download(document["id"], type="text/plain"))["type"] == "text/plain"
    with pytest.raises(GoogleError, match="not supported"):
        await drive.download(document["id"], type="image/png")
    folder = await drive.create_folder("Empty")
    with pytest.raises(ToolRefusedError, match="no content"):
        await drive.download(folder["id"])


async def test_words_in_quotes_of_a_query_are_no_terms(drive: Any) -> None:
    name = r"fullText, it's trashed\n"
    await drive.trash((await drive.create(name, "x"))["id"])
    made = [await drive.create(name, "x") for _ in range(2)]
    query = r"name = 'fullText, it\'s trashed\\n'"
    found = (await drive.search(query=query))["files"]
    assert [file["id"] for file in found] == [file["id"] for file in reversed(made)]


async def test_files_can_be_changed_moved_trashed_and_deleted(
    google: GoogleServer, drive: Any
) -> None:
    await drive.create_folder("Old")
    made = await drive.create("a.txt", "one")
    await drive.update(made["id"], content="two")
    assert await drive.text("a.txt") == "two"
    moved = await drive.update(made["id"], name="b.txt", folder="Old")
    assert (await drive.get("Old/b.txt"))["id"] == moved["id"]
    assert (await drive.copy("Old/b.txt", name="c.txt", folder="/"))["name"] == "c.txt"
    assert (await drive.trash(made["id"]))["trashed"]
    with pytest.raises(ToolRefusedError, match=r"no 'b.txt' in Old"):
        await drive.get("Old/b.txt")
    await drive.delete("Old")
    with pytest.raises(ToolRefusedError):
        await drive.get(made["id"])  # went with its folder


async def test_ambiguous_path_is_refused(google: GoogleServer, drive: Any) -> None:
    ids = {google.drive.add("twice", "text/plain", b"").id for _ in range(2)}
    with pytest.raises(ToolRefusedError, match="path of several files") as caught:
        await drive.get("twice")
    assert all(key in caught.value.message for key in ids)


async def test_shared_drives_are_addressed_by_name(google: GoogleServer, drive: Any) -> None:
    google.drive.drives["0Ateam"] = "Team"
    folder = await drive.create_folder("Shared drives/Team/Plans")
    made = await drive.create("a.txt", "x", folder="Shared drives/Team/Plans")
    assert google.drive.files[made["id"]].data["driveId"] == "0Ateam"
    assert [f["id"] for f in (await drive.search(folder=folder["id"]))["files"]] == [made["id"]]
    with pytest.raises(ToolRefusedError, match="shared drives: Team"):
        await drive.get("Shared drives/Nobody/a.txt")


async def test_share_gives_access_and_sends_a_message(google: GoogleServer, drive: Any) -> None:
    made = await drive.create("a.txt", "x")
    await drive.share("a.txt", "bob@example.com", role="writer", message="Look")
    await drive.share("a.txt", "eve@example.com", notify=False)
    await drive.share("a.txt", "anyone")
    await drive.share("a.txt", "domain:example.com", role="commenter")
    assert google.drive.mails == [("bob@example.com", "Look")]
    held = {p["who"]: p["role"] for p in await drive.list_permissions(made["id"])}
    assert held == {"ada@example.com": "owner", "bob@example.com": "writer", "eve@example.com": "reader", "anyone": "reader", "example.com": "commenter"}  # fmt: skip
    await drive.unshare("a.txt", "anyone")
    await drive.unshare("a.txt", "domain:example.com")
    with pytest.raises(ToolRefusedError, match=r"is not shared with 'max@example\.com'"):
        await drive.unshare("a.txt", "max@example.com")
    google.lose("drive.permissions.create")
    with pytest.raises(LostAnswerError):
        await drive.share("a.txt", "max@example.com")
    assert len(google.drive.mails) == 2  # not sent twice


async def test_interrupted_upload_creates_one_file(google: GoogleServer, drive: Any) -> None:
    content = bytes(range(256)) * 8 * 1024  # 2 MB
    google.fail("drive.files.create", 503, after_calls=1)  # it was opened
    made = await drive.create("big.bin", content)
    assert google.drive.files[made["id"]].content == content
    google.faults.clear()
    google.lose("drive.files.create", after=1)  # the file is stored, and the answer is lost
    again = await drive.create("again.bin", content)
    assert sum(f.data["name"] == "again.bin" for f in google.drive.files.values()) == 1
    assert google.drive.files[again["id"]].content == content
    google.faults.clear()
    google.drop("drive.files.create", times=100)
    google.faults[-1].after = 1
    with pytest.raises(LostAnswerError, match="check before you repeat it"):
        await drive.create("never.bin", content)


async def test_concurrent_creates_of_one_name_make_separate_files(
    google: GoogleServer, drive: Any
) -> None:
    made = await asyncio.gather(*(drive.create("twin.txt", "x") for _ in range(3)))
    assert len({file["id"] for file in made}) == 3


def test_drive_permissions_and_scopes_match_the_actions() -> None:
    methods = {
        m["name"]: (m.get("permission", m["name"]), m["effect"])
        for m in Drive.inspect(verbose=True)["methods"]
    }
    units = "reading creating update removing share unshare"
    assert {unit for unit, _ in methods.values()} == set(units.split())
    assert methods["trash"] == ("removing", "write")
    assert methods["delete"] == ("removing", "irreversible")
    assert methods["share"] == ("share", "irreversible")
    assert Drive(allow=["search", "creating"]).needed_scopes() == (
        SCOPE_URL_PREFIX + "drive.file",
        SCOPE_URL_PREFIX + "drive.readonly",
    )
    assert Drive().needed_scopes() == (SCOPE_URL_PREFIX + "drive",)


async def test_shortcuts_resolve_to_their_target(google: GoogleServer, drive: Any) -> None:
    folder = google.drive.add("Plans", FOLDER)
    plan = google.drive.add("plan.txt", "text/plain", b"The plan", parent=folder.id)
    google.drive.shortcut("To plans", folder)
    link = google.drive.shortcut("To the plan", plan)
    assert await drive.text("To the plan") == "The plan"
    assert await drive.text("To plans/plan.txt") == "The plan"
    assert (await drive.get(link.id))["id"] == plan.id
    assert (await drive.create("b.txt", "x", folder="To plans"))["folder"] == folder.id
    inner = await drive.create_folder("To plans/Inner")
    assert inner["folder"] == folder.id
    await drive.update("To the plan", content="New")
    assert plan.content == b"New"
    await drive.update("To the plan", name="Link")
    await drive.trash("Link")
    assert (link.data["trashed"], plan.data["trashed"]) == (True, False), "not what it leads to"
    await drive.delete(link.id)
    assert plan.id in google.drive.files
    found = (await drive.search(kind="shortcut"))["files"]
    assert [file["name"] for file in found] == ["To plans"]
    broken = google.drive.shortcut("Broken", link)
    with pytest.raises(ToolRefusedError, match="a shortcut to a file that is not there"):
        await drive.text(broken.id)
    call = ProposedCall(action="delete", arguments={"file": "To plans"})
    assert "'To plans'" in (await drive.check(call)).preview


async def test_resource_key_is_sent_for_files_that_need_it(
    google: GoogleServer, drive: Any
) -> None:
    plan = google.drive.add("plan.txt", "text/plain", b"The plan")
    plan.data["resourceKey"] = "0-abcdef"
    with pytest.raises(GoogleError, match="not found"):
        await drive.get(f"https://drive.google.com/file/d/{plan.id}/view")
    link = f"https://drive.google.com/file/d/{plan.id}/view?usp=sharing&resourcekey=0-abcdef"
    assert await drive.text(link) == "The plan"
    google.drive.shortcut("To the plan", plan)
    fresh = Drive(base_url=google.url, token=google.logins.token_for(USER, ALL))
    assert await fresh.text("To the plan") == "The plan"
    await fresh.aclose()


async def test_login_for_own_files_uses_the_narrow_scope(
    google: GoogleServer, connect: Any
) -> None:
    """With the narrowest scope Google hides the top of the drive and other people's files."""
    folder = google.drive.add("Theirs", FOLDER)
    other = google.drive.add("theirs.txt", "text/plain", b"x")
    token = google.logins.token_for(USER, [SCOPE_URL_PREFIX + "drive.file"])
    drive = connect(Drive, allow=["creating"], token=token)
    made = await drive.create("a.txt", "x")
    own = await drive.create_folder("Mine/Inner")
    assert (await drive.create("b.txt", "x", folder=own["id"]))["folder"] == own["id"]
    assert (await drive.copy(made["id"], name="c.txt"))["name"] == "c.txt"
    for act in (drive.create("d.txt", "x", folder=folder.id), drive.copy(other.id)):
        with pytest.raises((GoogleError, ToolRefusedError)):
            await act
    address = f"https://drive.google.com/file/d/{other.id}/view"
    with pytest.raises(GoogleError) as caught:
        await drive.copy(address)
    assert "only files that delf created" in (caught.value.hint or "")
    reading = google.logins.token_for(
        USER, [SCOPE_URL_PREFIX + "drive.file", SCOPE_URL_PREFIX + "drive.readonly"]
    )
    wider = connect(Drive, allow=["creating", "reading"], token=reading)
    with pytest.raises(GoogleError, match="write access") as caught:
        await wider.create("d.txt", "x", folder="Theirs")
    assert "add 'update' to the setting 'allow'" in (caught.value.hint or "")
    await drive.aclose()
    await wider.aclose()


async def test_search_covers_shared_drives(google: GoogleServer, drive: Any) -> None:
    google.drive.drives["0Ateam"] = "Team"
    google.drive.add("plan.txt", "text/plain", b"x", parent="0Ateam", drive="0Ateam")
    assert len((await drive.search(name="plan"))["files"]) == 1
    assert (await drive.get("Shared drives/Team/plan.txt"))["name"] == "plan.txt"
    google.drive.incomplete = True
    assert "did not search all shared drives" in (await drive.search(name="plan"))["notice"]


async def test_empty_documents_are_reported(google: GoogleServer, drive: Any) -> None:
    for kind in ("document", "spreadsheet", "presentation"):
        assert (await drive.create(f"Empty {kind}", type=kind))["kind"] == kind
    with pytest.raises(ToolRefusedError, match="cannot become a presentation"):
        await drive.create("Talk", "# Title", type="presentation")


async def test_file_without_a_parent_folder_can_be_moved(google: GoogleServer, drive: Any) -> None:
    folder = await drive.create_folder("Old")
    shared = google.drive.add("theirs.txt", "text/plain", b"x", parent=None)
    assert (await drive.update(shared.id, folder="Old"))["folder"] == folder["id"]


@pytest.mark.parametrize("blank", ["", " ", "//"])
async def test_blank_file_is_not_the_whole_drive(
    google: GoogleServer, connect: Any, blank: str
) -> None:
    drive = connect(Drive, allow=["reading", "creating", "removing", "share"])
    for change in (drive.delete(blank), drive.trash(blank), drive.share(blank, "eve@example.com")):
        with pytest.raises(ToolRefusedError, match="no file is named"):
            await change
    assert not google.seen
    assert (await drive.create("a.txt", content="x", folder=blank))["name"] == "a.txt"
    await drive.aclose()
