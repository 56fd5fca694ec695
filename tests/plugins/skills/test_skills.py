"""Skills: listed in prompts, read by scripts, trusted as files of the project."""

from __future__ import annotations

import os
import tomllib

import pytest

from delf import Agent, load_project
from delf.errors import ConnectionConfigurationError, DelfError, ToolRefusedError
from delf.trust.folders import UntrustedFolder
from delf_skills.connection import Skills
from delf_skills.library import skill_of
from delf_skills.project_files import project_files

REPORT = """---
name: report
description: Write the report of a month.
license: none
---

Amounts are in euros. See `template.md`.
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A project with a skill and its files."""
    monkeypatch.chdir(tmp_path)
    skill = tmp_path / "skills" / "report"
    (skill / "scripts").mkdir(parents=True)
    (skill / "SKILL.md").write_text(REPORT)
    (skill / "template.md").write_text("# Report of {month}\n")
    (skill / "scripts" / "sum.py").write_text("print(1)\n")
    (skill / "logo.png").write_bytes(b"\x89PNG")
    (tmp_path / "AGENTS.md").write_text("Answer in one line.\n")
    (tmp_path / "delf.toml").write_text('[connections.skills]\ntype = "skills"\n')
    return tmp_path


@pytest.fixture
def skills(folder):
    return Skills(name="skills", folders=[str(folder / "skills")])


async def test_context_lists_skills_and_agents_md(skills, folder, monkeypatch):
    monkeypatch.setenv("DELF_TRUST", str(folder))
    text = await Skills(name="skills", folders=[str(folder / "skills")]).context("x")
    assert "AGENTS.md of this project:\nAnswer in one line." in text
    assert "- report: Write the report of a month." in text
    off = Skills(name="skills", folders=[str(folder / "skills")], agents_md=False)
    assert "Answer in one line" not in await off.context("x")


async def test_context_is_empty_without_skills(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert await Skills(name="skills").context("x") is None


async def test_read_returns_instructions_and_lists_files(skills):
    text = await skills.read("report")
    assert text.startswith("Amounts are in euros.")
    assert text.endswith("Files of this skill: logo.png, scripts/sum.py, template.md")
    assert await skills.read("report", "template.md") == "# Report of {month}\n"
    assert await skills.data("report", "logo.png") == b"\x89PNG"
    assert await skills.data("report", "scripts/sum.py") == b"print(1)\n"


@pytest.mark.parametrize(
    ("skill", "file", "problem"),
    [
        ("nothing", "SKILL.md", "there is no skill 'nothing'. Skills: report"),
        ("../report", "SKILL.md", "there is no skill"),
        ("report", "../../delf.toml", "leads out of the skill"),
        ("report", "/etc/passwd", "leads out of the skill"),
        ("report", "gone.md", "there is no file 'gone.md'"),
        ("report", "scripts", "there is no file .scripts."),
        ("report", "logo.png", "is data: skills.data('report', 'logo.png')"),
    ],
)
async def test_unreadable_file_is_refused(skills, skill, file, problem):
    with pytest.raises(ToolRefusedError, match=problem.replace("(", r"\(").replace(")", r"\)")):
        await skills.read(skill, file)


async def test_skill_link_out_of_its_folder_is_not_followed(skills, folder):
    (folder / "secret.md").write_text("secret")
    os.symlink(folder / "secret.md", folder / "skills" / "report" / "link.md")
    with pytest.raises(DelfError, match="is a link out of its folder"):
        await skills.read("report", "link.md")


async def test_skill_linked_out_of_the_project_does_not_hide_other_skills(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "SKILL.md"
    elsewhere.write_text(REPORT)
    (folder / "skills" / "linked").symlink_to(elsewhere.parent)
    (folder / "skills" / "half").mkdir()
    (folder / "skills" / "half" / "SKILL.md").symlink_to(elsewhere)
    root = UntrustedFolder(root=folder, document=tomllib.loads((folder / "delf.toml").read_text()))
    assert all(path.resolve().is_relative_to(folder.resolve()) for path in project_files(root))
    text = await Skills(name="skills", folders=[str(folder / "skills")], agents_md=False).context(
        ""
    )
    assert "- report: Write the report of a month." in text
    assert text.count("is a link out of its folder") == 2


async def test_descriptions_are_whole_unless_many_skills_share_the_prompt(skills, folder):
    long = "x" * 900
    for number in range(2):
        (folder / f"skills/s{number}").mkdir()
        (folder / f"skills/s{number}/SKILL.md").write_text(f"---\ndescription: {long}\n---\nx")
    assert f"- s1: {long}\n" in f"{await skills.context('x')}\n"
    for number in range(2, 40):
        (folder / f"skills/s{number}").mkdir()
        (folder / f"skills/s{number}/SKILL.md").write_text(f"---\ndescription: {long}\n---\nx")
    assert f"- s1: {'x' * 300}…\n" in await skills.context("x")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no front matter", "must begin with fields"),
        ("---\nname: report\n", "must begin with fields"),
        ("---\nname: [\n---\nx", "line 2: the front matter is not YAML"),
        ("---\nwhen: 2026-13-45\n---\nx", "the front matter is not YAML"),
        (f"---\nx: {'[' * 3000}\n---\nx", "the front matter is not YAML"),
        ("---\nname: report\n---\nx", "has no description"),
        ("---\n- a\n---\nx", "has no description"),
        ("---\ndescription: caf\udce9\n---\nx", "SKILL.md is not UTF-8 text"),
    ],
)
async def test_invalid_skill_is_listed_with_the_reason(skills, folder, text, problem):
    file = folder / "skills" / "report" / "SKILL.md"
    file.write_bytes(os.fsencode(text))
    with pytest.raises(DelfError, match=problem):
        skill_of(file, file.read_bytes())
    assert "- report: cannot be read:" in await skills.context("x")


async def test_instructions_that_cannot_be_read_are_named(skills, folder):
    (folder / "skills" / "report" / "template.md").write_bytes(b"caf\xe9")
    with pytest.raises(DelfError, match=r"template\.md is not UTF-8 text"):
        await skills.read("report", "template.md")
    (folder / ".agents").mkdir()
    (folder / ".agents" / "skills").symlink_to("skills")  # a link to itself
    with pytest.raises(DelfError, match=r"\.agents/skills cannot be read: "):
        await Skills(name="skills", agents_md=False).context("x")


def test_folder_that_a_program_names_must_exist(folder):
    with pytest.raises(ConnectionConfigurationError, match=r"skils.* is not a folder"):
        Skills(name="skills", folders=["skills", "skils"])


def test_skill_with_windows_line_endings_is_read(folder):
    file = folder / "skills" / "report" / "SKILL.md"
    content = b"\xef\xbb\xbf" + REPORT.replace("\n", "\r\n").encode()
    assert skill_of(file, content).text == "Amounts are in euros. See `template.md`."


def test_skill_is_named_after_its_folder(folder):
    file = folder / "skills" / "report" / "SKILL.md"
    named = REPORT.replace("name: report", "name: The Report")
    assert skill_of(file, named.encode()).name == "report"


def test_instructions_of_a_trusted_project_reach_the_model(
    folder, delf_host, scripted_model, monkeypatch
):
    scripted_model.default = "```python\nprint(skills.read('report'))\n```"
    monkeypatch.setenv("DELF_TRUST", str(folder))
    options = {"llm": "scripted", "host": delf_host, "journal": "none", "retry_count": 0}
    with Agent.from_project(load_project(folder), **options) as agent:
        assert agent.run("x").text.startswith("Amounts are in euros.")
    assert "- report: Write the report of a month." in scripted_model.prompts[0]
    assert "Answer in one line." in scripted_model.prompts[0]


@pytest.mark.parametrize(
    ("config", "files"),
    [
        ('[connections.k]\ntype = "skills"\n', {"AGENTS.md", "skills/report/SKILL.md"}),
        ('[connections.k]\ntype = "shell"\n', {"skills/report/SKILL.md"}),
    ],
)
def test_skills_and_agents_md_are_project_files(folder, config, files):
    (folder / "delf.toml").write_text(config)
    root = UntrustedFolder(root=folder, document=tomllib.loads(config))
    found = {path.relative_to(folder).as_posix() for path in project_files(root)}
    assert found == {*files, "skills/report/template.md"}
