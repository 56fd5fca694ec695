"""Python functions as tools: the model sees their signatures and docstrings, nothing else."""

from delf import Agent, ToolException, tool
from delf.testing import ScriptedModel, TestHost

STOCK = {"lamp": 4, "desk": 0}


@tool(effect="read", confirm=False)
def stock(product: str) -> int:
    """Count the pieces of a product in the warehouse."""
    if product not in STOCK:
        raise ToolException(f"there is no {product}; there are: {', '.join(STOCK)}")
    return STOCK[product]


@tool(effect="read", confirm=False)
async def price(product: str, pieces: int = 1) -> float:
    """Return the price of so many pieces of a product, in euros."""
    return {"lamp": 20.0, "desk": 150.0}[product] * pieces


# What a real model would write for this task. Calls that do not need each other overlap.
ANSWER = """
lamps, cost = await asyncio.gather(stock("lamp"), price("lamp", pieces=3))
print(f"There are {lamps} lamps; three of them cost {cost:.2f} euros.")
try:
    print(await stock("sofa"))
except ToolError as error:
    print(error)
"""


def main() -> None:
    host = TestHost.discover()
    model = ScriptedModel().writes(ANSWER)
    host.provide(model.spec, model.factory)
    with Agent(tools=[stock, price], llm="scripted", host=host) as agent:
        response = agent.run("How many lamps are there, what do three cost, and is there a sofa?")
    print(response.raise_for_status().text)
    for call in response.trace.tool_calls:
        print(f"  {call.name}({dict(call.arguments)}) {call.status}")


if __name__ == "__main__":
    main()
