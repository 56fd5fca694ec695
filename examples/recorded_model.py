"""A model that answers from a file, as in tests and demonstrations.

``delf run … --record FILE`` writes such a file while a real model answers.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from delf import Agent, tool

RECORDING = Path(__file__).with_suffix(".jsonl")


@tool(effect="read", confirm=False)
def products() -> list[dict[str, str | int]]:
    """All products with the pieces in the warehouse."""
    return [{"name": "lamp", "pieces": 4}, {"name": "desk", "pieces": 12}]


def main() -> None:
    with TemporaryDirectory() as folder:
        llm = f"recorded:{RECORDING}"
        with Agent(tools=[products], llm=llm, output_dir=folder) as agent:
            response = agent.run("Which products are below ten pieces?").raise_for_status()
            again = agent.run("Which products are above ten pieces?")
        print(response.text)
        print(Path(response.files["low.csv"]).read_text(), end="")
    print(f"{response.trace.usage.total_tokens} tokens, {response.cost_usd} USD")
    print(again.exception.code if again.exception else "no error")


if __name__ == "__main__":
    main()
