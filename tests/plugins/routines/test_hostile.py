"""A routine of a stranger's pull request: its header gives no rights, and its file no surprise."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from delf import Agent, tool
from delf.errors import ConfigurationError, FolderNotTrustedError
from delf.trust.decisions import Trust
from delf_routines.program import Routines
from delf_routines.routine import Routine, UsedAction
from delf_routines.store import RoutineStore

READ = UsedAction(effect="read", parameters=("number: int",), returns="int")
PAY = UsedAction(effect="irreversible", parameters=("to: str",), returns="str")
HEAD = '# /// routine\n# title = "Look"\n# task = "Look."\n'


def routine(script, **actions):
    return Routine(name="thing", title="Look", task="Look.", script=script, actions=actions)


@pytest.fixture
def paid():
    return []


@pytest.fixture
def run(store, paid, delf_host, scripted_model, scripted_approvals):
    """Puts a routine into the folder like a checkout, and runs it."""

    @tool(effect="read", confirm=False)
    def look(number: int) -> int:
        """Look."""
        return number

    @tool(effect="irreversible")
    def pay(to: str) -> str:
        """Pay."""
        paid.append(to)
        return "paid"

    async def do(made, **options):
        store.folder.mkdir(exist_ok=True)
        (store.folder / "thing.py").write_text(made if isinstance(made, str) else made.text())
        given = {"llm": "scripted", "host": delf_host, "approvals": ["scripted"], **options}
        async with Agent(tools=[look, pay], **given) as agent:
            return await Routines(agent).find("thing").arun()

    return do


async def test_false_effect_in_the_header_is_detected(run, paid):
    response = await run(routine("await pay('eve')", pay=replace(PAY, effect="read")))
    assert "its effect was read, and is irreversible" in response.error
    assert paid == []


async def test_false_digest_in_the_header_is_detected(run, paid):
    response = await run(routine("await pay('eve')", pay=replace(PAY, schema="f" * 16)))
    assert "the schema of its arguments has changed" in response.error
    assert paid == []


async def test_action_named_in_a_routine_header_still_requires_approval(
    run, paid, scripted_approvals
):
    scripted_approvals.says(False)
    response = await run(routine("await pay('eve')", pay=PAY))
    assert not response.status
    assert [request.action for request in scripted_approvals.requests] == ["pay"]
    assert paid == []


async def test_header_cannot_allow_a_disallowed_action(store):
    for line in ('# allow = ["pay"]\n', '# approve = "all"\n', "# [actions.pay]\n# asks = false\n"):
        text = f"{HEAD}{line}# ///\nprint(1)\n"
        with pytest.raises(ConfigurationError, match="unknown key"):
            Routine.of_text("thing", text, "thing.py")


@pytest.mark.parametrize(
    "script",
    [
        "await pay('eve')",
        "p = pay\nawait p('eve')",
        "await globals()['pay']('eve')",
        "await ｐａｙ('eve')",
        "try:\n    await globals()['pa' + 'y']('eve')\nexcept BaseException as e:\n    print(e)",
    ],
)
async def test_action_missing_from_the_header_is_not_called(run, paid, scripted_approvals, script):
    scripted_approvals.says(True, True)
    made = routine(f"await look(1)\n{script}", look=READ)
    response = await run(made, approval_mode="approve_all")
    shown = f"{response.error} {response.text}"
    assert "does not name pay" in shown
    assert paid == []


async def test_untrusted_routine_file_is_not_run(run, paid, monkeypatch):
    monkeypatch.delenv("DELF_TRUST")
    with pytest.raises(FolderNotTrustedError):
        await run(routine("await pay('eve')", pay=PAY))


async def test_routine_file_changed_since_trust_is_not_run(store, monkeypatch, tmp_path):
    monkeypatch.delenv("DELF_TRUST")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    own = RoutineStore(tmp_path, Trust.here())
    path = own.keep(routine("print(1)"))
    path.write_text(path.read_text() + "print(2)\n")
    with pytest.raises(FolderNotTrustedError):
        own.find("thing")


async def test_reading_a_routine_file_runs_nothing(store, tmp_path):
    bait = tmp_path / "bait"
    store.folder.mkdir()
    code = f"import pathlib\npathlib.Path({str(bait)!r}).write_text('x')\n"
    (store.folder / "thing.py").write_text(f"{HEAD}# ///\n{code}")
    (store.folder / "__init__.py").write_text(code)
    (store.folder / "conftest.py").write_text(f"{HEAD}# ///\n{code}")
    assert store.find("thing").script
    assert store.names() == ["conftest", "thing"]
    assert not bait.exists()


async def test_routine_cannot_read_files_of_the_machine(run, tmp_path):
    (tmp_path / "secret.txt").write_text("hunter2")
    response = await run(routine(f"print(open({str(tmp_path / 'secret.txt')!r}).read())"))
    assert not response.status
    assert "hunter2" not in str(response.error) + response.text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (HEAD + f"# x = {'[' * 100_000}\n# ///\nprint(1)\n", "thing.py"),
        (HEAD + "".join(f"# [actions.a{n}]\n" for n in range(5)), "its header has no end"),
        (HEAD + "# ///\nprint('\u202egnp.exe')\n", "U+202E"),
        (HEAD + "# ///\nprint('a\u2066b')\n", "U+2066"),
        (HEAD + "# ///\nprint('a\U000e0041')\n", "U+E0041"),
        (HEAD + "# ///\nprint('\u200b')\n", "U+200B"),
        (HEAD + "# ///\n" + "(" * 5000, "the script is not Python"),
        (HEAD.replace("# task", "#\n task") + "# ///\n", "does not begin with '#'"),
        (HEAD + "# on_failure = 'repair always'\n# ///\n", "on_failure: "),
        (HEAD + "# [limits]\n# calls = -1\n# ///\n", "limits.calls: "),
        (HEAD + "# [parameters.__class__]\n# default = 'x'\n# ///\n", "__class__"),
        (HEAD + "# [parameters.x]\n# default = 'x'\n# pattern = '('\n# ///\n", "parameters.x"),
        (HEAD + "# ///\nprint('a\x00b')\n", "the script is not Python"),
    ],
)
def test_misleading_header_or_script_is_refused(text, shown):
    with pytest.raises(ConfigurationError) as caught:
        Routine.of_text("thing", text, "thing.py")
    assert shown in caught.value.message
    assert "\u202e" not in caught.value.message


def test_oversized_routine_file_is_refused(store):
    store.folder.mkdir()
    (store.folder / "thing.py").write_text(HEAD + "# x\n" * 100_000 + "# ///\n")
    with pytest.raises(ConfigurationError, match="has more than 256 KiB"):
        store.find("thing")


def test_joiners_and_marks_in_titles_are_kept():
    words = "نام‌ها 👩‍👧 \u202eback"
    made = replace(routine("print('نام‌ها')"), title=words, task=words)
    assert Routine.of_text("thing", made.text(), "thing.py") == made
    assert "\u202e" not in made.text()


@pytest.mark.parametrize("name", ["../evil", "a/b", "/etc/passwd", "a.b", "", "A", "раy", "x" * 64])
def test_path_as_routine_name_is_refused(store, name):
    for find in (store.find, store.path, store.case_path, store.proposed, store.remove):
        with pytest.raises(ConfigurationError):
            find(name)


def test_routine_link_out_of_the_folder_is_not_followed(store, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    secret = outside / "secret.py"
    secret.write_text(f"{HEAD}# ///\nprint('secret')\n")
    store.folder.mkdir()
    (store.folder / "thing.py").symlink_to(secret)
    with pytest.raises(ConfigurationError, match="link out of"):
        store.find("thing")
    store.keep(routine("print(1)"))
    assert "secret" in secret.read_text()
    assert not (store.folder / "thing.py").is_symlink()


def test_save_refuses_a_folder_linked_outside(store, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    os.symlink(outside, store.folder)
    with pytest.raises(ConfigurationError, match="link out of"):
        store.keep(routine("print(1)"))
    with pytest.raises(ConfigurationError, match="link out of"):
        store.propose(routine("print(1)"), "{}")
    assert [*outside.rglob("*")] in ([], [outside / "proposed"])
    assert not [*outside.rglob("*.py")]


async def test_untrusted_proposal_is_not_run(run, store, paid):
    store.propose(routine("await pay('eve')", pay=PAY), "{}")
    response = await run(routine("print(await look(1))", look=READ))
    assert response.raise_for_status().text == "1"
    assert paid == []
