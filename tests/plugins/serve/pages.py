"""The page of ``delf serve`` in a browser: steps and checks that several tests share."""

from __future__ import annotations

from pathlib import Path

import axe_playwright_python
from playwright.async_api import Page, expect

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
HOSTILE = "<img src=x onerror=window.hurt=1><script>window.hurt=1</script>\u202e\x1b[2J" + "W" * 300


async def at(page: Page, task: dict, *, timeout: float = 5_000) -> None:
    """Show a task, and wait until the page shows its id."""
    await page.evaluate("name => { location.hash = `#/${name}`; }", task["task_id"])
    shown_id = page.locator(f'.meta code[title="{task["task_id"]}"]')
    await expect(shown_id).to_be_visible(timeout=timeout)


async def accessible(page: Page, *within: str, rules: tuple[str, ...] = ()) -> list[str]:
    """Return axe's findings, for the page or for elements of it.

    Args:
        page: A page.
        within: Selectors of the elements to check; without any, the page is checked.
        rules: The names of the rules to check; without any, all rules are checked.
    """
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE.read_text())
    options = {"runOnly": [*rules]} if rules else {}
    found = await page.evaluate(
        "async ([places, options]) => (await axe.run(places, options)).violations",
        [[*within] or ["html"], options],
    )
    return [f"{item['id']}: {item['nodes'][0]['html'][:200]}" for item in found]
