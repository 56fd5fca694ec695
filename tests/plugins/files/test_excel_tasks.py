"""A task that reads a workbook and hands one over, in a real sandbox."""

import sys

import pytest
from openpyxl import Workbook, load_workbook

from delf import Agent
from delf_devkit.testing.hosts import TestHost


def test_task_copies_rows_between_workbooks(delf_host, scripted_model, tmp_path):
    book = Workbook()
    book.active.title = "Budget"
    for row in (["month", "spent"], ["May", 120], ["June", 80]):
        book.active.append(row)
    book.save(tmp_path / "budget.xlsx")
    scripted_model.writes("""
(file,) = await files.list()
rows = await files.read(file["name"], sheet=file["sheets"][0])
over = [{**row, "note": "=over"} for row in rows if row["spent"] > 100]
add_to_output_files("over.xlsx", {"Over": over, "All": rows})
print(file["type"], file["sheets"], len(over))
""")
    with Agent(
        llm="scripted",
        sandbox="local",
        host=delf_host,
        files=[str(tmp_path / "budget.xlsx")],
        output_dir=str(tmp_path / "out"),
    ) as agent:
        response = agent.run("Which months are over budget?")
    assert (response.error, response.text) == (None, "excel ['Budget'] 1")
    made = load_workbook(response.files["over.xlsx"])
    assert [*made["Over"].iter_rows(values_only=True)] == [
        ("month", "spent", "note"),
        ("May", 120, "=over"),
    ]
    assert made["Over"]["C2"].data_type == "s"
    assert made["All"].max_row == 3


@pytest.mark.parametrize("sandbox", ["local", "monty"])
def test_workbooks_work_in_every_sandbox(delf_host, scripted_model, tmp_path, sandbox):
    scripted_model.writes("add_to_output_files('a.xlsx', [{'a': 1, 'b': 'x'}, {'a': 2}])")
    options = {"host": delf_host, "output_dir": str(tmp_path)}
    with Agent(llm="scripted", sandbox=sandbox, **options) as agent:
        response = agent.run("x")
    sheet = load_workbook(response.files["a.xlsx"]).active
    assert [*sheet.iter_rows(values_only=True)] == [("a", "b"), (1, "x"), (2, None)]


def test_missing_library_error_reaches_the_script(scripted_model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    host = TestHost.discover(environ={})
    host.provide(scripted_model.spec, scripted_model.factory)
    scripted_model.writes("add_to_output_files('a.xlsx', [{'a': 1}])")
    with Agent(llm="scripted", sandbox="local", host=host, retry_count=0) as agent:
        response = agent.run("x")
    assert "delf plugins install 'files[excel]'); write a .csv file instead" in response.error
    assert response.files == {}


def test_unwritable_rows_fail_the_script(delf_host, scripted_model, tmp_path):
    scripted_model.writes("add_to_output_files('a.xlsx', [{'t': 'x' * 40_000}])\nprint('made')")
    scripted_model.writes("add_to_output_files('a.csv', [{'t': 'x'}])\nprint('as text')")
    with Agent(llm="scripted", sandbox="local", host=delf_host, output_dir=str(tmp_path)) as agent:
        response = agent.run("x")
    assert response.text == "as text"
    assert list(response.files) == ["a.csv"]
    asked = scripted_model.requests[1].messages[-1].text
    assert "OutputFileError: 'a.xlsx': a cell holds at most 32,767 characters" in asked
