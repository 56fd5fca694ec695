"""``delf runs undo``: a task gives back the files that it changed."""

from __future__ import annotations

import click

from delf_cli import errors
from delf_cli.output import json_text


@click.command("undo", epilog="Exit status: 0 done, 1 some files were left as they are.")
@click.argument("task_id", metavar="ID")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show the changes, but make none.")
@click.option("--json", "as_json", is_flag=True, help="Write it as JSON; needs --yes or --dry-run.")
@click.pass_context
def undo(ctx: click.Context, task_id: str, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Restore the files that the task ID and its child tasks changed.

    A file that has changed since then stays as it is. New files are removed.

    \b
    delf runs undo 3f9a --dry-run
    """  # noqa: D301 - click's mark for lines that stay as they are
    from delf_cli.journals import load_tree
    from delf_filesystem import copies

    if as_json and not (yes or dry_run):
        raise click.UsageError("--json needs --yes or --dry-run", ctx)
    found = copies.plan(load_tree(ctx, task_id))
    todo = [item for item in found if item.problem is None and not item.done]
    if not as_json:
        for item in found:
            click.echo(errors.visible(str(item)))
    if not found:
        errors.say("hint", "the task changed no file that is kept")
    if todo and not dry_run:
        if not yes and not click.confirm(f"give back {len(todo)} of {len(found)}?", err=True):
            ctx.exit(errors.FAILED)
        for item in todo:
            item.undo()
        copies.prune()
    if as_json:
        rows = [
            {"path": str(item.place), "undone": item in todo and not dry_run, "why": item.problem}
            for item in found
        ]
        click.echo(json_text(rows, indent=2))
    ctx.exit(errors.FAILED if any(item.problem for item in found) else errors.OK)
