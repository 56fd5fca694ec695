"""Commands that break one thing each; installed into a project folder."""

import importlib
import sys

import pytest

from delf.testing import CommandContract
from delf_devkit.testing.hosts import forget_modules

HOOKS = '''
"""What it brings."""
from delf.hookspecs import hookimpl
from delf.specs import CommandSpec

@hookimpl
def delf_commands():
    """One."""
    yield CommandSpec(name="orders", summary="Orders.", factory="delf_made.command:orders")
'''
START = """
import json, os, sys, time
import click
from delf.errors import ConfigurationError

"""
LISTS = '''
@click.group()
def orders():
    """Look at orders."""

@orders.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--key", envvar="ORDERS_KEY", help="The key of the shop.")
def list_orders(as_json, key):
    """List all orders."""
    click.echo(json.dumps([7]) if as_json else "order 7")
'''
SHOWS = '''
@orders.command("show")
@click.argument("number", type=int)
def show(number):
    """Show an order."""
    if number != 7:
        raise ConfigurationError(f"there is no order {number}", hint="delf orders list")
    click.echo("order 7")

@orders.command("watch")
def watch():
    """Wait for new orders."""
    while True:
        time.sleep(0.05)
'''


RAISES = 'raise ConfigurationError(f"there is no order {number}", hint="delf orders list")'
SLEEPS = "        time.sleep(0.05)"


def code(lists=LISTS, shows=SHOWS):
    return f"{START}{lists}{shows}"


def showing(before, after):
    """Return the command with a changed text in ``show`` or ``watch``."""
    assert before in SHOWS
    return code(shows=SHOWS.replace(before, after))


class Suite(CommandContract):
    name = "orders"
    seconds = 3.0
    runs = (("list",), ("show", "7"))
    failing_runs = (("show", "8"),)
    waiting_run = ("watch",)
    environ = {"ORDERS_KEY": "ord-secret"}
    secrets = ("ord-secret",)
    text = code()

    @pytest.fixture
    def delf_project(self, delf_project):
        files = {"__init__.py": "", "plugin.py": HOOKS, "command.py": self.text}
        delf_project.install_plugin(
            "made", {f"delf_made/{name}": text for name, text in files.items()}
        )
        return delf_project

    @pytest.fixture
    def command(self, delf_project, monkeypatch):
        before = set(sys.modules)
        monkeypatch.syspath_prepend(str(delf_project.site))
        yield importlib.import_module("delf_made.command").orders
        forget_modules(delf_project.site, before)


class TestGood(Suite):
    pass


class FlatSuite(Suite):
    runs = ((),)
    failing_runs = waiting_run = ()


FLAT = '''
@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def orders(as_json):
    """List orders."""
'''


class TestGoodWithoutAGroup(FlatSuite):
    text = START + FLAT + "    click.echo('[7]' if as_json else 'order 7')\n"


class TestHasNoHelp(Suite):
    breaks = ("test_help_describes_every_command_and_option",)
    says = "`delf orders show` has no help"
    text = showing('"""Show an order."""', "")


class TestHasExamplesInARawDocstring(Suite):
    breaks = ("test_help_describes_every_command_and_option",)
    says = r"the help of `delf orders show` shows \b"
    text = showing(
        '"""Show an order."""', 'r"""Show an order.\n\n    \\b\n    delf orders show 7\n    """'
    )


class TestHasAnOptionWithoutHelp(Suite):
    breaks = ("test_help_describes_every_command_and_option",)
    says = "--json of `delf orders list` has no help"
    text = code(LISTS.replace(', help="Print JSON."', ""))


class TestWorksForItsHelp(Suite):
    breaks = ("test_help_is_shown",)
    text = code(LISTS.replace("@click.group()", "@click.group(add_help_option=False)"))


class TestImportsForSeconds(Suite):
    breaks = ("test_import_is_quick",)
    says = "of processor time"
    text = code() + "\nend = time.process_time() + 1.6\nwhile time.process_time() < end: pass\n"


class TestLoadsAtOnce(Suite):
    breaks = ("test_import_is_quick",)
    says = "importing the command prints 'loaded'"
    text = code() + "\nprint('loaded')\n"


class TestNeedsAnAnswer(Suite):
    breaks = ("test_runs_succeed_without_input",)
    text = showing("    if number", "    input('Sure? ')\n    if number")


class TestAsksForever(Suite):
    breaks = ("test_runs_succeed_without_input",)
    says = "without input"
    seconds = 1.0
    asks = """
    while True:
        try:
            input('Sure? ')
            break
        except EOFError:
            pass
    if number"""
    text = showing("    if number", asks)


class TestIgnoresOptions(FlatSuite):
    breaks = ("test_unknown_option_is_refused",)
    says = "with a mistyped option it ends with the status 0"
    text = (
        START
        + FLAT.replace(
            "@click.command()",
            "@click.command(context_settings={'ignore_unknown_options': True})\n"
            "@click.argument('more', nargs=-1)",
        ).replace("(as_json)", "(as_json, more)")
        + "    click.echo('[7]')\n"
    )


class TestFailsWithStatusZero(Suite):
    breaks = ("test_failure_has_a_message_and_a_status",)
    says = "ends with the status 0"
    text = showing(RAISES, "return click.echo(f'there is no order {number}', err=True)")


class TestFailsOnTheStandardOutput(Suite):
    breaks = ("test_failure_has_a_message_and_a_status",)
    says = "says nothing on the standard error"
    text = showing(RAISES, "click.echo('there is no such order'); sys.exit(1)")


class TestPrintsNotesIntoItsJson(FlatSuite):
    breaks = ("test_json_output_can_be_parsed",)
    says = "which is not JSON"
    text = START + FLAT + "    click.echo('1 order')\n    click.echo('[7]')\n"


class TestGoodJsonLines(FlatSuite):
    passes = ("test_json_output_can_be_parsed",)
    text = START + FLAT + "    click.echo('{}\\n{}')\n"


class TestSwallowsInterrupts(Suite):
    breaks = ("test_interrupt_ends_the_command",)
    says = "after Ctrl-C"
    text = showing(SLEEPS, f"        try:\n    {SLEEPS}\n        except BaseException: pass")


class TestInterruptIsSuccess(Suite):
    breaks = ("test_interrupt_ends_the_command",)
    says = "the status 0"
    text = showing(SLEEPS, f"        try:\n    {SLEEPS}\n        except KeyboardInterrupt: return")


class TestTakesAPassword(Suite):
    breaks = ("test_secrets_are_no_arguments_of_the_command_line",)
    says = "--password of `delf orders list` takes a secret"
    text = code(
        LISTS.replace(
            "def list", '@click.option("--password", help="The password.")\ndef list'
        ).replace("(as_json, key)", "(as_json, key, password)")
    )


class TestPrintsItsKey(Suite):
    breaks = ("test_secrets_are_never_shown",)
    says = "`delf orders list` shows a secret"
    text = code(LISTS.replace('"order 7"', 'f"order 7 for {key}"'))


class TestGivesItsKeyToAProgram(Suite):
    breaks = ("test_secrets_are_never_shown",)
    says = "on the command line of a program"
    text = code(
        LISTS.replace("    click.echo(", "    os.system(f'true --key {key}')\n    click.echo(")
    )


class TestLeavesAThread(Suite):
    breaks = ("test_use_leaves_the_process_unchanged",)
    says = "still runs"
    text = code(
        LISTS.replace(
            "    click.echo(",
            "    import threading\n    threading.Thread(target=threading.Event().wait, args=(5,), "
            "daemon=True, name='watch').start()\n    click.echo(",
        )
    )
