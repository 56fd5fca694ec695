"""The program's flags, and lazily created objects of its commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from delf.errors import FolderNotTrustedError
from delf.machine.kept_keys import own_variables
from delf.records import dataclass
from delf_cli import colours
from delf_cli.withheld import Withheld

if TYPE_CHECKING:
    from delf.plugins.host import PluginHost
    from delf_engine.project.project import Project
    from delf_engine.redact import Redactor


_ABSENT: Final = "the task began with --plugin {path}: give this file again"


@dataclass()
class State:
    """The flags that every command accepts.

    Args:
        debug: Show tracebacks.
        no_plugins: Use no installed plugin.
        config: The file to use instead of the nearest ``delf.toml``.
        trust: Folders whose files are trusted for this command only.
        plugin: Python files, each used as an installed plugin.
        absent: Python files that were plugins when the resumed task began, and are not given now.
    """

    debug: bool = False
    no_plugins: bool = False
    config: str | None = None
    trust: tuple[str, ...] = ()
    plugin: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    redactor: Redactor | None = field(default=None, repr=False)
    found: tuple[object, PluginHost] | None = field(default=None, repr=False)

    def load_project(
        self,
        overrides: Sequence[str] = (),
        flags: Mapping[str, Any] | None = None,
        *,
        ask: bool = True,
    ) -> Project:
        """Load the configuration that applies here.

        Args:
            overrides: ``KEY=VALUE`` texts of ``--set``.
            flags: Fields of the agent's configuration; None means not given.
            ask: Whether to ask at the terminal about an untrusted folder.

        Raises:
            FolderNotTrustedError: If its files are not trusted.
            ConfigurationError: For an invalid setting, with file, key and allowed values.
        """
        from delf.trust.decisions import Trust
        from delf_engine.project.project import load_project

        trust = Trust.here(*self.trust)
        while True:
            try:
                # Load again after a yes: a file that changed meanwhile needs another answer.
                return load_project(
                    overrides=overrides,
                    flags=flags,
                    file=self.config,
                    trust=trust,
                    host=self.discover(),
                )
            except FolderNotTrustedError:
                from delf_cli import trust_question

                if (
                    not ask
                    or not trust_question.can_ask()
                    or not trust_question.ask(self.config, self.clean, self.discover())
                ):
                    raise

    def clean(self, text: str) -> str:
        """Redact secrets of the environment and the configuration in a text."""
        return self._cleaner().text(text)

    def clean_data(self, data: Any) -> Any:
        """Redact plain data like :meth:`clean`."""
        return self._cleaner().value(data)

    def _cleaner(self) -> Redactor | Withheld:
        try:
            return self._secret_redactor()
        except (Exception, SystemExit):  # report a broken engine
            return Withheld(own_variables().values())

    def hide_secrets_of(self, settings: object) -> None:
        """Redact the secrets of a connection's settings, which the command line may have set."""
        from delf_engine.secrets import secrets_of_settings

        self._secret_redactor().learn("settings", [*secrets_of_settings(settings)])

    def _secret_redactor(self) -> Redactor:
        """Return a redactor with all secrets that can be collected without failing."""
        if self.redactor is None:
            from delf_engine.redact import Redactor
            from delf_engine.secrets import secrets_of_environ

            self.redactor = Redactor(secrets_of_environ(own_variables()))
            try:
                keys = self.discover().providers.keys
                self.redactor.learn("keys", [*secrets_of_environ(own_variables(), keys)])
                secrets = tuple(self.load_project(ask=False).secrets())
            except Exception:  # reporting a failure must not fail
                return self.redactor
            self.redactor.learn("project", secrets)
        return self.redactor

    def discover(self, environ: Mapping[str, str] | None = None) -> PluginHost:
        """Discover plugins, cached until a package or setting changes.

        Raises:
            PluginError: If a file of ``--plugin`` cannot be imported.
        """
        from delf.plugins import discovery
        from delf.plugins.host import PluginHost

        variables = dict(own_variables() if environ is None else environ)
        discovery_key = (
            self.no_plugins,
            self.plugin,
            self.absent,
            variables,
            discovery.installation_stamp(),
        )
        if self.found is None or self.found[0] != discovery_key:
            extra = [discovery.from_file(path) for path in self.plugin]
            absent = [(Path(path).stem, _ABSENT.format(path=path)) for path in self.absent]
            host = PluginHost.discover(
                no_plugins=self.no_plugins, environ=variables, extra=extra, absent=absent
            )
            self.found = discovery_key, host
        return self.found[1]


def state_of(ctx: click.Context) -> State:
    """Return the program's state from a command's context."""
    state: object = ctx.find_root().obj
    return state if isinstance(state, State) else State()


def _remember(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Store a flag that may be given before or after the command's name."""
    if value:
        state = ctx.find_root().ensure_object(State)
        name = str(parameter.name)
        several = name in ("trust", "plugin")
        setattr(state, name, (*getattr(state, name), *value) if several else value)


def take_everywhere(command: click.Command) -> click.Command:
    """Add the program's flags to a command and its subcommands, and return the command.

    The flags are ``--debug``, ``--color``, ``--no-plugins``, ``--config``, ``--trust`` and, for
    authors, ``--plugin``. A command's own flag of that name takes precedence.
    """
    used_names = {name for param in command.params for name in (param.name, *param.opts)}
    command.params += [flag for flag in _flags() if used_names.isdisjoint((flag.name, *flag.opts))]
    if isinstance(command, click.Group):
        for item in command.commands.values():
            take_everywhere(item)
    return command


def _colour(ctx: click.Context, _parameter: click.Parameter, value: Any) -> None:
    """Apply ``--color`` before any output; the last of several flags wins."""
    if value is not None:
        colours.choose(value)
    colours.apply(ctx)


def _flags() -> list[click.Option]:
    common: dict[str, Any] = {
        "expose_value": False,
        "callback": _remember,
        "is_eager": True,  # processed before --help, which loads plugins
    }
    return [
        click.Option(["--debug"], is_flag=True, help="Show tracebacks and log messages.", **common),
        click.Option(
            ["--color"],
            type=click.Choice(("auto", "always", "never")),
            help="Use colours; auto, the default, follows the terminal and NO_COLOR.",
            expose_value=False,
            callback=_colour,
            is_eager=True,
        ),
        click.Option(["--no-plugins"], is_flag=True, help="Use no installed plugin.", **common),
        click.Option(
            ["--config"],
            metavar="FILE",
            type=click.Path(),
            help="Use this file instead of the nearest delf.toml.",
            **common,
        ),
        click.Option(
            ["--trust"],
            metavar="FOLDER",
            multiple=True,
            type=click.Path(exists=True, file_okay=False),
            help="Trust the files of this folder for this command only.",
            **common,
        ),
        click.Option(
            ["--plugin"],
            metavar="FILE",
            multiple=True,
            hidden=True,  # for plugin authors, see docs/plugins
            type=click.Path(exists=True, dir_okay=False),
            help="Use the plugin in this file without installing it.",
            **common,
        ),
    ]
