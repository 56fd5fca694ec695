"""Input and output files of a task whose scripts run in containers."""

from delf_devkit.testing.contracts.bench import Bench, require_done, require_failed
from delf_engine.inputs import find_inputs, input_files


async def test_listed_paths_can_be_opened(make_backend, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "data.csv").write_text(folder)
    backend = make_backend()
    found = find_inputs([str(tmp_path / "a/data.csv"), str(tmp_path / "b/data.csv")])
    files = input_files(found, backend.visible_path)
    assert [file.name for file in files] == ["data.csv", "data-2.csv"]
    async with Bench(backend) as bench:
        run = await bench.open(files=tuple(found), file_names=("data.csv", "new.csv"))
        code = f"[open(name).read() for name in {[file.visible for file in files]}]"
        assert require_done(await run(code)).value == ["a", "b"]
        assert require_done(await run("open('new.csv').read()")).value == "b"
        require_failed(await run("open('/workspace/data.csv', 'w')"), "PermissionError")


async def test_workbook_rows_are_sent_to_the_host(make_backend):
    async with Bench(make_backend()) as bench:
        run = await bench.open(row_files=(".xlsx",))
        require_done(await run("add_to_output_files('a.xlsx', [{'a': 1}])"))
        assert run.host.files == {"a.xlsx": b'{"Sheet1":[["a"],[1]]}'}
