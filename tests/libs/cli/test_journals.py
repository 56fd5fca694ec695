"""The word `last`: the newest task of the project of the current folder."""

import pytest

from delf.errors import UnknownTaskError
from delf.events import TaskStarted
from delf_cli.journals import CurrentProject, find_id
from delf_cli.state import State
from delf_journal_sql import SqlJournal


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Two projects, each with a folder below it, and a folder outside of them."""
    for name in ("shop", "bank"):
        (tmp_path / name / "below").mkdir(parents=True)
        (tmp_path / name / "delf.toml").write_text("")
    (tmp_path / "nowhere").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
async def last(folders, monkeypatch):
    """Returns a function that adds tasks of folders, and resolves `last` in a folder."""
    journals = []

    async def resolve_last(task_folders, folder, config=None):
        journal = SqlJournal(str(folders / f"journal{len(journals)}.db"))
        journals.append(journal)
        for number, task_folder in enumerate(task_folders):
            setup = {} if task_folder is None else {"folder": task_folder}
            event = TaskStarted(
                task_id=f"task_{number}", seq=1, at=100.0 + number, task="t", setup=setup
            )
            await journal.append(event)
        monkeypatch.chdir(folders / folder)
        project = CurrentProject.of(State(config=config))
        return await find_id(journal, "last", project)

    yield resolve_last
    for journal in journals:
        await journal.aclose()


@pytest.mark.parametrize("folder", ["shop", "shop/below"])
async def test_word_last_means_the_newest_task_of_this_project(folder, last, folders):
    names = ["shop", "shop/below", "bank", "nowhere"]
    task_folders = [str(folders / name) for name in names]
    assert await last([*task_folders, None, "shop", "."], folder) == "task_1"


async def test_word_last_means_the_newest_of_all_tasks_outside_of_a_project(last, folders):
    assert await last([str(folders / "shop"), str(folders / "bank"), None], "nowhere") == "task_2"


async def test_word_last_finds_a_task_behind_many_of_other_projects(last, folders):
    task_folders = [str(folders / "shop"), *[str(folders / "bank")] * 250]
    assert await last(task_folders, "shop") == "task_0"


async def test_word_last_with_a_config_file_includes_tasks_of_the_working_folder(last, folders):
    config = str(folders / "shop/delf.toml")
    task_folders = [str(folders / name) for name in ("shop", "bank")]
    assert await last(task_folders, "nowhere", config) == "task_0"
    typed_here = [*task_folders, str(folders / "nowhere"), str(folders / "bank")]
    assert await last(typed_here, "nowhere", config) == "task_2"


async def test_word_last_without_a_task_hints_how_to_list_all_tasks(last, folders):
    with pytest.raises(UnknownTaskError, match=r"the project .*shop has no task yet in .*db") as e:
        await last([str(folders / "bank"), None], "shop")
    assert "delf runs list" in e.value.hint


async def test_word_last_in_an_empty_journal_is_an_error(last):
    with pytest.raises(UnknownTaskError, match=r"there is no task yet in .*db"):
        await last([], "nowhere")
