import json

from delf.packages.official import packages

TOML = '[connections.shop]\ntype = "sql"\nurl = "sqlite:///x.db"\nallow = ["query", "write"]\n'


def test_inspect_shows_a_type_without_credentials(run):
    result = run("inspect", "sql")
    assert result.exit_code == 0
    assert "query   read    may ask" in result.stdout  # no URL says which database it is
    assert "write   write   asks" in result.stdout
    assert "note: this is its type" in result.stdout


def test_inspect_shows_a_configured_connection(run, here):
    (here / "delf.toml").write_text(TOML)
    result = run("inspect", "shop")
    assert result.stdout.startswith("shop (sql): ")
    assert "not allowed" in result.stdout
    assert "note:" not in result.stdout


def test_inspect_lists_the_connections_of_the_project(run, here):
    assert "no connection is in delf.toml" in run("inspect").stderr
    (here / "delf.toml").write_text('[connections.shop]\ntype = "sql"\nurl = "${NOPE}"\n')
    assert run("inspect").stdout == "shop (sql)\n"
    assert json.loads(run("inspect", "--json").stdout) == [{"name": "shop", "type": "sql"}]


def test_inspect_reports_a_missing_variable(run, here):
    (here / "delf.toml").write_text('[connections.shop]\ntype = "sql"\nurl = "${SHOP_URL}"\n')
    result = run("inspect", "shop")
    assert result.exit_code == 0
    assert "SHOP_URL is not set" in result.stdout
    for key in ("connections.shop.url", "url"):
        set_url = ("--set", f"{key}=sqlite:///x.db")
        assert "note:" not in run("inspect", "shop", *set_url).stdout


def test_inspect_verbose_shows_signatures(run):
    data = json.loads(run("inspect", "sql", "--json", "--verbose").stdout)
    assert data["methods"][0]["signature"]
    variables = {item["variable"] for item in data["settings"]}
    assert "DELF_SQL_URL" in variables
    text = run("inspect", "sql", "-v").stdout
    assert "query(statement: str" in text
    assert "DELF_SQL_URL" in text


def test_inspect_hides_the_password(run, here):
    (here / "delf.toml").write_text(
        '[connections.shop]\ntype = "sql"\nurl = "postgresql://u:sesame@h/d"\n'
    )
    for arguments in (["-v"], ["-v", "--json"], []):
        assert "sesame" not in run("inspect", "shop", *arguments).output


def test_inspect_of_an_unknown_connection_suggests_a_name(run, monkeypatch):
    result = run("inspect", "sqk")
    assert result.exit_code == 2
    assert "did you mean 'sql'?" in result.stderr
    monkeypatch.setitem(packages("connection"), "notion", "delf-plugin-notion")
    result = run("inspect", "notion")
    assert "hint: delf plugins install notion" in result.stderr


def test_inspect_marks_calls_that_may_require_approval(run, here):
    (here / "delf.toml").write_text(
        '[connections.run]\ntype = "shell"\nrules = [{ pattern = "ls *" }]\nconfirm = false\n'
    )
    shown = run("inspect", "run").stdout
    assert "free" not in shown
    assert "may ask" in shown


def test_inspect_fails_if_an_unreachable_server_would_name_the_actions(run, here):
    (here / "delf.toml").write_text('[connections.git]\ntype = "mcp"\ncommand = "/nowhere/git"\n')
    result = run("inspect", "git")
    assert result.exit_code == 1
    assert "error: git: the MCP server '/nowhere/git' does not start" in result.stderr
    assert result.stdout == ""
    assert "Its actions are not known yet." in run("inspect", "mcp").stdout


def test_inspect_reports_a_connection_name_that_scripts_need(run, here):
    (here / "delf.toml").write_text(TOML.replace("shop", "files"))
    shown = run("inspect", "files").stdout
    assert "query" in shown
    assert "note: tasks cannot use the connection: a tool cannot be named 'files'" in shown
    assert "[connections.NAME] in delf.toml" in shown
