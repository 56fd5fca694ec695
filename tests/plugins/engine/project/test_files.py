import os
from pathlib import Path

import pytest

from delf import load_project
from delf.errors import ConfigurationError
from delf.settings import folder_of


def test_nearest_project_file_upwards_is_used(tmp_path):
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (tmp_path / "delf.toml").write_text("[agent]\ntimeout = 1\n")
    assert load_project(deep, environ={}).file == tmp_path / "delf.toml"
    (tmp_path / "a" / "delf.toml").write_text("[agent]\ntimeout = 2\n")
    found = load_project(deep, environ={})
    assert found.file == tmp_path / "a" / "delf.toml"
    assert found.root == tmp_path / "a"
    assert found.agent.timeout == 2


def test_missing_project_file_means_defaults(tmp_path):
    found = load_project(tmp_path, environ={})
    assert (found.file, found.root) == (None, tmp_path)
    assert found.agent.timeout == 60
    assert found.connections == {}
    assert dict(found.plugin_options) == {}
    assert found.warnings == ()


def test_project_search_ends_at_the_file_system_root():
    assert load_project("/", environ={}).root.as_posix() == "/"


def test_directory_named_delf_toml_is_ignored(tmp_path):
    (tmp_path / "delf.toml").mkdir()
    assert load_project(tmp_path, environ={}).file is None


def test_project_search_begins_at_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "delf.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    assert load_project(environ={}).file == tmp_path / "delf.toml"


def test_deleted_working_directory_has_no_project_file(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigurationError, match="the working directory does not exist"):
        load_project(environ={})
    monkeypatch.chdir(tmp_path)


def test_named_project_file_must_exist(tmp_path):
    with pytest.raises(ConfigurationError, match=r"other\.toml does not exist"):
        load_project(tmp_path, file=tmp_path / "other.toml", environ={})


def test_explicit_project_file_is_not_searched_for(tmp_path):
    (tmp_path / "delf.toml").write_text("broken")
    (tmp_path / "other.toml").write_text("[agent]\ntimeout = 3\n")
    assert load_project(tmp_path, file=tmp_path / "other.toml", environ={}).agent.timeout == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[agent\n", r"delf\.toml, line 1, column 7: "),
        ("[agent]\ntimeout = \n", r"delf\.toml, line 2, column 11: Invalid value"),
        ("[agent]\ntimeout = 1\ntimeout = 2\n", r"line 3, column 12: Cannot overwrite a value"),
        ("[agent]\nx = '''", r"delf\.toml, (at the end of the file|line 2)"),
        ("timeout = 5\n", r"delf\.toml: 'timeout' is outside of a section"),
        ("journal = 'sql'\n", r"delf\.toml: 'journal' is outside of a section"),
        ("[llm]\nmodel = 'x'\n", r"delf\.toml: 'llm' is outside of a section"),
        (
            "[journal]\nurl = 'a'\n[plugins.journal-sql]\nurl = 'b'\n",
            r"\[journal\] url: \[plugins\.journal-sql\] sets it, too",
        ),
        ("[agnet]\n", r"delf\.toml: unknown section 'agnet'; did you mean 'agent'\?"),
        ("[connection.shop]\n", r"unknown section 'connection'; did you mean 'connections'\?"),
        ("agent = 3\n", r"delf\.toml: 'agent' is a value, not a section"),
        ("[connections]\nshop = 'sql'\n", r"'connections\.shop' is a value, not a section"),
        ("[plugins]\nx = 1\n", r"'plugins\.x' is a value, not a section"),
        (
            "[agent]\ntimeot = 5\n",
            r"delf\.toml \[agent\]: unknown key 'timeot'; did you mean 'timeout'\?",
        ),
        ("[agent]\nbase_url = 'x'\n", r"unknown key 'base_url'; did you mean 'llm\.base_url'\?"),
        (
            "[connections.my-shop]\n",
            r"\[connections\.my-shop\]: the connection name 'my-shop' cannot",
        ),
        ("[connections.class]\n", r"cannot be called from a script"),
        ("[connections.shop]\nname = 'x'\n", r"\[connections\.shop\]: 'name' cannot be set here"),
        ("[connections.shop]\ntype = 3\n", r"\[connections\.shop\] type: it is int, not a name"),
        ("[connections.shop.allow]\nx = 3\n", r"\[connections\.shop\] allow: it cannot be a table"),
    ],
)
def test_toml_error_names_line_and_file(project, text, message):
    with pytest.raises(ConfigurationError, match=message) as caught:
        project(text)
    assert caught.value.hint
    assert "Traceback" not in caught.value.describe()


def test_journal_section_sets_the_journal(tmp_path):
    (tmp_path / "delf.toml").write_text(
        '[agent]\njournal = "sql"\n\n[journal]\nkeep = "90 days"\n'
        "[plugins.journal-sql]\nlock_timeout = 5\n"
    )
    read = load_project(tmp_path, environ={}, trust=True)
    assert dict(read.plugin_options["journal-sql"]) == {"keep": "90 days", "lock_timeout": 5}
    assert read.journal == "sql"


def test_binary_project_file_is_refused(tmp_path):
    (tmp_path / "delf.toml").write_bytes(b"[agent]\nsystem_prompt = '\xff'\n")
    with pytest.raises(ConfigurationError, match=r"delf\.toml is not UTF-8 text"):
        load_project(tmp_path, environ={})


def test_byte_order_mark_is_ignored(tmp_path):
    (tmp_path / "delf.toml").write_bytes(b"\xef\xbb\xbf[agent]\r\ntimeout = 7\r\n")
    assert load_project(tmp_path, environ={}).agent.timeout == 7


@pytest.mark.skipif(os.name == "nt", reason="needs permissions")
def test_unreadable_project_file_is_reported(tmp_path, monkeypatch):
    (tmp_path / "delf.toml").write_text("")
    opens = os.open

    def refuse(path, *args, **kwargs):
        if os.fspath(path).endswith("delf.toml"):
            raise PermissionError(13, "Permission denied")
        return opens(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ConfigurationError, match=r"delf\.toml cannot be read: Permission denied"):
        load_project(tmp_path, environ={})


def test_paths_are_relative_to_their_config_file(tmp_path):
    below = tmp_path / "below"
    below.mkdir()
    (tmp_path / "delf.toml").write_text(
        "[agent]\nfiles = ['a.csv', '/b.csv']\noutput_dir = 'out'\nrecord = '~/r.jsonl'\n"
        "own_files = ['prices', '~/b.csv']\n"
    )
    agent = load_project(below, environ={}).agent
    assert agent.files == (str(tmp_path / "a.csv"), "/b.csv")
    assert agent.own_files == (str(tmp_path / "prices"), str(Path.home() / "b.csv"))
    assert agent.output_dir == str(tmp_path / "out")
    assert agent.record == str(Path.home() / "r.jsonl")
    agent = load_project(below, flags={"files": ["a.csv"], "output_dir": "out"}, environ={}).agent
    assert agent.files == ("a.csv",)
    assert agent.output_dir == "out"


def test_model_from_a_file_resolves_paths_beside_the_file(tmp_path):
    below = tmp_path / "below"
    below.mkdir()
    (tmp_path / "delf.toml").write_text(
        "[agent]\nllm = 'recorded:a.jsonl'\nvision_llm.model = '${SEEN}'\n"
    )
    variables = {"SEEN": "recorded:b.jsonl"}
    agent = load_project(below, environ=variables).agent
    assert (agent.main_llm.model, agent.image_llm.model) == ("recorded:a.jsonl", "recorded:b.jsonl")
    assert folder_of(agent.main_llm.with_settings(seed=1).model) == tmp_path
    assert folder_of(agent.image_llm.model) == tmp_path
    flagged = load_project(below, flags={"llm": "recorded:a.jsonl"}, environ=variables).agent
    assert folder_of(flagged.main_llm.model) is None
