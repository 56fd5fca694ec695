"""``docs/terminal.md``: its views are those of the program, on a terminal."""

import re
from pathlib import Path

import pytest

from support.terminal import TerminalProcess

from .scenes import COLUMNS, PAGE, SCENES, played_on, prepare, shell, views

pytestmark = pytest.mark.timeout(90)

VIEWS = views(PAGE.read_text(encoding="utf-8"))


def test_every_scene_has_a_view():
    assert list(VIEWS) == list(SCENES)


@pytest.mark.parametrize("name", SCENES)
def test_a_view_shows_what_matters_and_nothing_of_the_machine(name):
    view = VIEWS[name]
    assert [part for part in SCENES[name].shows if part not in view] == []
    assert view.startswith("$ delf ")
    paths = set(re.findall(r"(?<![\w.:])/[\w.-]+(?:/[\w.-]+)+", view))
    assert {path for path in paths if not path.startswith(("/home/ada/", "/var/run/"))} == set()


@pytest.mark.parametrize("name", SCENES)
def test_the_program_still_shows_it(name: str, tmp_path: Path):
    scene = SCENES[name]
    command, env, here = shell(tmp_path)
    prepare(scene, here)
    with TerminalProcess(command, env=env, cwd=here, columns=COLUMNS) as terminal:
        terminal.expect("$ ")
        playing = played_on(scene, terminal, here, env)
        next(playing)
        shown = re.sub(r"\s+", " ", terminal.text)
        missing = [part for part in scene.shows if re.sub(r"\s+", " ", part) not in shown]
        assert missing == []
        list(playing)
