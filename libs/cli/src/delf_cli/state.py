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


_MISSING_PLUGIN_MESSAGE: Final = "the task began with --plugin {path}: give this file again"


@dataclass()
class State:
    """The flags that every command accepts, and objects that commands share.

    Args:
        debug: Whether to show tracebacks.
        no_plugins: Whether to ignore all installed plugins.
        config: The file to use instead of the nearest ``delf.toml``.
        trust: Folders whose files are trusted for this command only.
        plugin: Paths of Python files, each of which is used as an installed plugin.
        missing_plugins: The paths that the resumed task got as ``plugin``, but this command did not
            get.
        redactor: The redactor, once it was made.
        discovered: A pair of a cache key and the discovered plugins, see :meth:`discover`; None
            before the first discovery.
    """

    debug: bool = False
    no_plugins: bool = False
    config: str | None = None
    trust: tuple[str, ...] = ()
    plugin: tuple[str, ...] = ()
    missing_plugins: tuple[str, ...] = ()
    redactor: Redactor | None = field(default=None, repr=False)
    discovered: tuple[object, PluginHost] | None = field(default=None, repr=False)

    def load_project(
        self,
        overrides: Sequence[str] = (),
        flags: Mapping[str, Any] | None = None,
        *,
        ask: bool = True,
    ) -> Project:
        """Load the configuration that applies in the current folder.

        From this call on, log messages are written to stderr, with the project's secrets redacted.

        Args:
            overrides: The ``KEY=VALUE`` texts of ``--set``.
            flags: A mapping from field of the agent's configuration to value; None for an option
                that was not given.
            ask: Whether to ask at the terminal about an untrusted folder.

        Raises:
            FolderNotTrustedError: If the project's files are not trusted.
            ConfigurationError: If a setting is invalid; the message has file, key and allowed
                values.
        """
        from delf.trust.decisions import Trust
        from delf_cli.logs import log_to_stderr
        from delf_engine.project.project import load_project

        log_to_stderr(self.redact, debug=self.debug)
        trust = Trust.here(*self.trust)
        while True:  # repeat after the person has trusted the folder
            try:
                return load_project(
                    overrides=overrides,
                    flags=flags,
                    file=self.config,
                    trust=trust,
                    host=self.discover(),
                )
            except FolderNotTrustedError:
                from delf_cli import trust_question

                if not ask or not trust_question.can_ask():
                    raise
                is_trusted_now = trust_question.ask(self.config, self.redact, self.discover())
                if not is_trusted_now:
                    raise
                # Load the project again. If a file has changed since the question, ask again.

    def redact(self, text: str) -> str:
        """Redact secrets of the environment and the configuration in a text."""
        return self._any_redactor().redact_text(text)

    def redact_data(self, data: Any) -> Any:
        """Redact secrets in all texts of JSON-like data."""
        return self._any_redactor().redact_value(data)

    def _any_redactor(self) -> Redactor | Withheld:
        """Return the redactor of secrets; if the engine fails, redact all environment variables."""
        try:
            return self._secret_redactor()
        except (Exception, SystemExit):  # the error of the engine must be redacted, too
            return Withheld(own_variables().values())

    def hide_secrets_of(self, settings: object) -> None:
        """Redact the secrets in a connection's settings from now on.

        Secrets that were given on the command line are not in the project's configuration, and
        would otherwise not be redacted.
        """
        from delf_engine.secrets import secrets_of_settings

        self._secret_redactor().learn("settings", [*secrets_of_settings(settings)])

    def _secret_redactor(self) -> Redactor:
        """Return a redactor of the secrets in the environment and in the project.

        The project's secrets are left out if the project cannot be loaded.
        """
        if self.redactor is not None:
            return self.redactor
        from delf_engine.redact import Redactor
        from delf_engine.secrets import secrets_of_environ

        # Stored before the project is loaded, because log messages of the load are redacted, too.
        redactor = self.redactor = Redactor(secrets_of_environ(own_variables()))
        try:
            # The installed providers name further variables that hold keys.
            key_variables = self.discover().providers.keys
            provider_keys = secrets_of_environ(own_variables(), key_variables)
            redactor.learn("keys", [*provider_keys])
            project_secrets = tuple(self.load_project(ask=False).secrets())
        except Exception:  # reporting a failure must not fail
            return redactor
        redactor.learn("project", project_secrets)
        return redactor

    def discover(self, environ: Mapping[str, str] | None = None) -> PluginHost:
        """Return the discovered plugins, cached until a package, flag or variable changes.

        Args:
            environ: The environment variables for the plugins. None stands for the variables of
                this process and the stored API keys.

        Raises:
            PluginError: If a file of ``--plugin`` cannot be imported.
        """
        from delf.plugins import discovery
        from delf.plugins.host import PluginHost

        variables = dict(own_variables() if environ is None else environ)
        discovery_key = (
            self.no_plugins,
            self.plugin,
            self.missing_plugins,
            variables,
            discovery.installation_stamp(),
        )
        if self.discovered is not None:
            known_key, known_host = self.discovered
            if known_key == discovery_key:
                return known_host
        extra = [discovery.from_file(path) for path in self.plugin]
        # A resumed task began with plugin files that this command did not name: the message
        # about such a plugin asks for its file.
        missing_plugins = [
            (Path(path).stem, _MISSING_PLUGIN_MESSAGE.format(path=path))
            for path in self.missing_plugins
        ]
        host = PluginHost.discover(
            no_plugins=self.no_plugins, environ=variables, extra=extra, absent=missing_plugins
        )
        self.discovered = discovery_key, host
        return host


def state_of(ctx: click.Context) -> State:
    """Return the program's flags from a command's context."""
    state: object = ctx.find_root().obj
    return state if isinstance(state, State) else State()


def _store_flag(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Store a flag in the state; a flag may be before or after the command's name."""
    # click calls this function for both places. The empty value at one place must not replace the
    # value at the other place.
    if value:
        state = ctx.find_root().ensure_object(State)
        name = str(parameter.name)
        is_repeatable = name in ("trust", "plugin")
        if is_repeatable:
            value = (*getattr(state, name), *value)
        setattr(state, name, value)


def add_global_flags(command: click.Command) -> click.Command:
    """Add the program's flags to a command and its subcommands, and return the command.

    The flags are ``--debug``, ``--color``, ``--no-plugins``, ``--config``, ``--trust`` and, for
    authors, ``--plugin``. A command's own flag of the same name takes precedence.
    """
    used_names = {name for param in command.params for name in (param.name, *param.opts)}
    command.params += [flag for flag in _flags() if used_names.isdisjoint((flag.name, *flag.opts))]
    if isinstance(command, click.Group):
        for item in command.commands.values():
            add_global_flags(item)
    return command


def _apply_colour_flag(ctx: click.Context, _parameter: click.Parameter, value: Any) -> None:
    if value is not None:
        colours.choose(value)
    colours.apply(ctx)


def _flags() -> list[click.Option]:
    common: dict[str, Any] = {
        "expose_value": False,
        "callback": _store_flag,
        "is_eager": True,  # processed before --help, which loads plugins
    }
    return [
        click.Option(["--debug"], is_flag=True, help="Show tracebacks and log messages.", **common),
        click.Option(
            ["--color"],
            type=click.Choice(("auto", "always", "never")),
            help="Use colours; auto, the default, follows the terminal and NO_COLOR.",
            expose_value=False,
            callback=_apply_colour_flag,
            is_eager=True,  # before any output
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
