"""Answer from a folder of documents: a worker reads each of them, all at once.

``ask_documents.py FOLDER MODEL QUESTION`` does it with your own; without arguments, with three
made-up documents and a recorded model.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from delf import Agent, Filesystem, Workers

HERE = Path(__file__).parent
DOCUMENTS = {
    "lamps.md": "# Lamps\nLamps are sent within 2 days. They can be given back for 30 days.\n",
    "desks.md": "# Desks\nDesks are built on order, and cannot be given back.\n",
    "jobs.md": "# Jobs\nWe look for a carpenter.\n",
}
QUESTION = "What can be given back?"


def ask(folder: Path, llm: str, question: str) -> None:
    disk = Filesystem(name="disk", roots={"docs": folder})
    workers = Workers(folders=[str(HERE / "workers")], allow_workers=["summarise"])
    task = f"Answer from the files of docs/, by what summarise says of each: {question}"
    with Agent(tools=[disk, workers], llm=llm, budget_usd=2.0, timeout=600) as agent:
        response = agent.run(task).raise_for_status()
    print(response.text)
    calls = [call for call in response.trace.tool_calls if call.name == "workers.call"]
    print(f"{len(calls)} workers, {response.cost_usd:.2f} USD")


def main() -> None:
    if len(sys.argv) > 3:
        ask(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
        return
    with TemporaryDirectory() as name:
        for file, text in DOCUMENTS.items():
            Path(name, file).write_text(text)
        ask(Path(name), f"recorded:{HERE / 'ask_documents.jsonl'}", QUESTION)


if __name__ == "__main__":
    main()
