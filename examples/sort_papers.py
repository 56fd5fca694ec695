"""Sort a folder of papers: a worker reads each, and copies go into a folder for each topic.

``sort_papers.py FOLDER MODEL`` does it with your own; without arguments, with three made-up papers
and a recorded model.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from delf import Agent, Filesystem, Workers

HERE = Path(__file__).parent
PAPERS = {
    "a1.md": "# Trees that merge\nLog-structured storage for databases.\n",
    "b7.md": "# Fair queues\nHow routers in networks share a link.\n",
    "c3.md": "# Counting rows\nSketches for databases that stream.\n",
}
TASK = """Sort the files of papers/ by topic: let classify look at each, all at once, copy each to
sorted/TOPIC/NAME, and write sorted/index.md with a line for each: topic, file, title."""


def sort(folder: Path, llm: str) -> None:
    (folder / "sorted").mkdir(exist_ok=True)
    disk = Filesystem(
        name="disk",
        roots={
            "papers": folder,
            "sorted": {"root": folder / "sorted", "mode": "rw", "write_approval": False},
        },
    )
    workers = Workers(folders=[str(HERE / "workers")], allow_workers=["classify"])
    with Agent(tools=[disk, workers], llm=llm, budget_usd=2.0, timeout=600) as agent:
        response = agent.run(TASK).raise_for_status()
    print(response.text)
    for path in sorted((folder / "sorted").rglob("*.md")):
        print(path.relative_to(folder))


def main() -> None:
    if len(sys.argv) > 2:
        sort(Path(sys.argv[1]), sys.argv[2])
        return
    with TemporaryDirectory() as name:
        for file, text in PAPERS.items():
            Path(name, file).write_text(text)
        sort(Path(name), f"recorded:{HERE / 'sort_papers.jsonl'}")


if __name__ == "__main__":
    main()
