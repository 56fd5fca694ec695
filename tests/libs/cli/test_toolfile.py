import sys
from pathlib import Path

import pytest

from delf.errors import ConfigurationError, DelfError, ToolDefinitionError
from delf_cli.toolfile import load_tools


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "path", list(sys.path))

    def make(source: str, name: str = "my_tools.py") -> Path:
        path = tmp_path / name
        path.write_text(source)
        return path

    yield make
    for name, module in [*sys.modules.items()]:
        if str(getattr(module, "__file__", "")).startswith(f"{tmp_path}/"):
            del sys.modules[name]


def names(path: Path, environ: dict[str, str] | None = None) -> list[str]:
    return [tool.name for tool in load_tools(path, environ or {})]


HEAD = "from delf import tool, Connection, action\n"
ADD = '@tool\ndef add(a: int) -> int:\n    """Add."""\n    return a\n'


def test_tool_file_offers_tools_and_connections_in_order(write):
    path = write(
        HEAD + ADD + "class Box(Connection):\n    '''A box.'''\n"
        "    @action(effect='read')\n    def look(self) -> int:\n        '''Look.'''\n        return 1\n"
        "left, right = Box(name='left'), Box(name='right')\nsame = left\n_hidden = Box(name='no')\n"
        "@tool\nasync def last() -> None:\n    '''Last.'''\n"
    )
    assert names(path) == ["add", "left", "right", "last"]


def test_tool_file_offers_no_imported_tools(write):
    write(HEAD + ADD, "neighbour.py")
    path = write(HEAD + "from neighbour import add\n" + ADD.replace("add", "mine"))
    assert names(path) == ["mine"]


def test_tool_file_annotations_may_name_local_types(write):
    path = write(
        HEAD + "from typing import TypedDict\ndef make():\n"
        "    class Point(TypedDict):\n        x: int\n"
        "    @tool\n    def move(to: Point) -> int:\n        'Move.'\n        return to['x']\n"
        "    return move\nmove = make()\n"
    )
    assert names(path) == ["move"]


def test_tool_file_connections_read_the_given_environment(write):
    path = write(
        HEAD + "from delf.settings import PluginSettings\nclass S(PluginSettings):\n    url: str\n"
        "class Box(Connection[S]):\n    '''A box.'''\n"
        "    @action(effect='read')\n    def look(self) -> int:\n        '''Look.'''\n        return 1\n"
        "box = Box()\n"
    )
    (box,) = load_tools(path, {"DELF_BOX_URL": "u"})
    assert box.settings.url == "u"


@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        ("x = 1\n", ToolDefinitionError, "defines no tool"),
        ("x = (\n", ConfigurationError, "my_tools.py:1: SyntaxError"),
        (
            "\n\nimport nothing_like_this\n",
            ConfigurationError,
            "my_tools.py:3: ModuleNotFoundError",
        ),
        (
            "def f():\n    return 1 / 0\nf()\n",
            ConfigurationError,
            "my_tools.py:2: ZeroDivisionError",
        ),
        ("import sys\nsys.exit(3)\n", ConfigurationError, "my_tools.py:2: SystemExit: 3"),
        (
            HEAD + "@tool\ndef f(*args: int) -> int:\n    '''F.'''\n    return 1\n",
            ToolDefinitionError,
            "my_tools.py:2: ",
        ),
        (
            HEAD
            + "from delf.settings import PluginSettings\nclass S(PluginSettings):\n    url: str\n"
            "class Box(Connection[S]):\n    '''A box.'''\n"
            "    @action(effect='read')\n    def look(self) -> int:\n        '''Look.'''\n        return 1\n"
            "box = Box()\n",
            ConfigurationError,
            "my_tools.py:11: ",
        ),
    ],
)
def test_tool_file_errors_name_file_and_line(write, source, kind, message):
    with pytest.raises(DelfError) as caught:
        load_tools(write(source), {})
    assert isinstance(caught.value, kind)
    assert message in caught.value.message


def test_load_tools_refuses_a_missing_file(tmp_path):
    with pytest.raises(ConfigurationError, match="does not exist"):
        load_tools(tmp_path / "nope.py", {})
    with pytest.raises(ConfigurationError, match="is not a file"):
        load_tools(tmp_path, {})


def test_tool_file_does_not_replace_a_library_of_its_name(write):
    path = write(HEAD + ADD, "json.py")
    assert names(path) == ["add"]
    assert sys.modules["json"].__file__ != str(path)
