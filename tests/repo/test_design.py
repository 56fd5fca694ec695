"""The map: the walks of docs/design.md go through modules that exist, and through every room of the engine."""

import re

import pytest

from support.workspace import CORE, ROOT, modules

SOURCE = CORE / "src/delf"
ENGINE = ROOT / "plugins/engine/src/delf_engine"
TESTS = sorted((ROOT / "tests").rglob("*.py"))
SCRIPTS = sorted((ROOT / "scripts").glob("*.py"))
HOMES = (SOURCE, ENGINE.parent, ROOT / "libs/cli/src", ROOT / "plugins/console/src")
PAGE = (ROOT / "docs/design.md").read_text(encoding="utf-8")
REASONS = (ROOT / "docs/decisions.md").read_text(encoding="utf-8")
WALKS = dict(re.findall(r"^### (.+?)\n```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


def steps(walk: str) -> list[str]:
    return [line.split()[0] for line in WALKS[walk].splitlines()]


def test_design_page_has_four_walks() -> None:
    assert list(WALKS) == ["One task", "One call", "One approval", "One resume"]


@pytest.mark.parametrize("walk", WALKS)
def test_steps_of_walks_name_existing_modules(walk: str) -> None:
    missing = [step for step in steps(walk) if not any((home / step).is_file() for home in HOMES)]
    assert not missing


def test_walks_mention_every_package_of_the_engine() -> None:
    rooms = {path.name for path in ENGINE.iterdir() if (path / "__init__.py").exists()}
    walked = {
        step.split("/")[1] for walk in WALKS for step in steps(walk) if "delf_engine/" in step
    }
    assert rooms - walked <= {"secrets"}


def test_modules_named_on_the_design_page_exist() -> None:
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", PAGE + REASONS))
    homes = (
        *HOMES,
        ENGINE,
        ROOT,
        *ROOT.glob("plugins/*/src/*"),
        *ROOT.glob("libs/*/src/*"),
    )
    missing = [name for name in named if not any((home / name).is_file() for home in homes)]
    assert not missing


def test_names_on_the_design_page_exist() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (*modules(), *TESTS, *SCRIPTS))
    words = set(re.findall(r"\w+", sources))
    named = re.findall(r"`([A-Za-z_][\w.]*?)(?:\(.*?\)|\[.*?\])?`", PAGE)
    missing = [name for name in named if not words.issuperset(name.split("."))]
    assert not [
        name for name in missing if not re.search(r"\.(py|md|js|toml|json|txt|pyi|yaml)$", name)
    ]
