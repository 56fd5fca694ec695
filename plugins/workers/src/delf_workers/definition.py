"""A worker as declared in its file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SkipValidation,
    ValidationError,
    computed_field,
    field_validator,
)

from delf.errors import (
    ConfigurationError,
    ModelConfigurationError,
    ToolRefusedError,
    did_you_mean,
)
from delf.llm import LLMConfig, normalise_settings
from delf_engine.config import llm_config
from delf_workers import frontmatter, shape
from delf_workers.template import Instructions, InstructionsError

Read = Callable[[Path], bytes]
"""Function that returns a file's content as it was when the user trusted its folder."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
# A mapping from the keys of ``attachment_policy`` to the keys of ``attachments``.
_POLICY_KEYS: Final = {
    "max_attachments": "max_count",
    "max_total_bytes": "max_total_bytes",
    "allowed_suffixes": "suffixes",
    "denied_suffixes": "denied_suffixes",
}
# Fields of a worker's definition that are not keys of its file.
_INTERNAL_FIELDS: Final = ("instructions", "front", "generated", "read")
_GIVEN_BY_MAKER: Final = ("model", "server_side_tools", "sandbox", "limits")
_ALIASES: Final = {"filesystem": "filesystem", "shell": "shell", "delegation": "workers"}
TOOLS: Final = "custom"
"""The name of the connection with the functions of the ``tools.py`` next to a worker."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Attachments(_Part):
    """The limits for files that are attached to a worker's task."""

    max_count: int = Field(default=10, ge=0, description="How many.")
    max_total_bytes: int = Field(
        default=10_000_000, ge=0, description=("The most bytes of all files together.")
    )
    suffixes: tuple[str, ...] = Field(default=(), description="Allowed suffixes; all when empty.")
    denied_suffixes: tuple[str, ...] = Field(default=(), description="Forbidden suffixes.")
    approval: bool = Field(default=False, description="Ask a person before each call with files.")

    @field_validator("suffixes", "denied_suffixes")
    @classmethod
    def _with_dots(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f".{suffix.lower().lstrip('.')}" for suffix in value)


class Limits(_Part):
    """The limits of a worker's task: its time, and the number of retries."""

    timeout: float | None = Field(default=None, gt=0, description="Seconds for one call.")
    retries: int | None = Field(
        default=None, ge=0, le=20, description=("Retries of a failed script.")
    )
    reruns: int | None = Field(
        default=None,
        ge=0,
        le=20,
        description=("The most further scripts that rerun() may ask for."),
    )


class Input(_Part):
    """An input of a worker, whose value replaces a placeholder in the instructions."""

    type: Literal["string", "number", "integer", "boolean"] = "string"
    description: str = ""
    default: str | float | int | bool | None = None


class Sandbox(_Part):
    """The key ``sandbox``: the folders of the worker's connection ``filesystem``, as in llm-do."""

    paths: dict[str, Any] = Field(
        default_factory=dict,
        description=("Folders by name, as in the setting `roots` of the filesystem connection."),
    )


class WorkerDefinition(_Part):
    """The contents of a ``.worker`` file.

    The fields are the keys of the file's front matter, and ``instructions`` is the text below.
    """

    name: str = Field(description="The worker's name.")
    description: str = Field(default="", description="The purpose of the worker, in one line.")
    instructions: str = Field(
        description=("The instructions for the model; {{input}} is replaced by its value.")
    )
    model: str | dict[str, Any] | None = Field(
        default=None, description="The model; the caller's if none is given."
    )
    compatible_models: tuple[str, ...] = Field(
        default=(), description="Patterns of the models that the worker supports; any when empty."
    )
    server_side_tools: tuple[str | dict[str, Any], ...] = Field(
        default=(), description="Tools that run at the model's provider: web_search."
    )
    connections: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="The worker's connections, by alias, type or class path."
    )
    sandbox: Sandbox = Field(default=Sandbox(), description="The folders that the worker sees.")
    attachments: Attachments = Field(
        default=Attachments(), description="The limits for attached files."
    )
    inputs: dict[str, Input] = Field(
        default_factory=dict,
        description=("The inputs, which replace {{input}} in the instructions."),
    )
    result: dict[str, Any] | None = Field(
        default=None, description="The JSON Schema of the answer; text if none is given."
    )
    limits: Limits = Field(default=Limits(), description="The limits of the worker's task.")
    budget_usd: float | None = Field(
        default=None, gt=0, description=("The most to spend in one call, in USD.")
    )
    maker: str | None = Field(
        default=None, description=("For a generated worker: the worker that made it.")
    )

    front: SkipValidation[frontmatter.FrontMatter] = Field(
        default=frontmatter.NONE, exclude=True, repr=False
    )
    generated: bool = Field(default=False, exclude=True)
    read: Read | None = Field(default=None, exclude=True, repr=False)

    @computed_field
    @property
    def file(self) -> Path:
        """The path of the worker's file."""
        return self.front.path

    def place(self, *keys: str) -> str:
        """Return file, line and key of a value, for error messages."""
        return self.front.place(keys)

    def kind_of(self, name: str) -> str | None:
        """Return the type of a connection; None if the worker's file alone does not tell the type.

        The file tells the type by the setting ``type``. Without this setting, the connection's name
        tells the type if the name is an import path, or is in ``_ALIASES``. Any other name is
        ambiguous: it may be the name of one of the agent's connections, or of a plugin's type.
        """
        configured = self.connections[name].get("type")
        if configured is not None:
            return str(configured)
        is_import_path = "." in name
        return name if is_import_path else _ALIASES.get(name)

    def llm(self, caller_model: LLMConfig) -> LLMConfig | None:
        """Return the worker's model; None for the model of its caller.

        Tools of the provider that the file names, such as a web search, are added to the worker's
        model. If the worker has no model, the tools are added to the caller's model.

        Args:
            caller_model: The model of the caller.

        Raises:
            ModelConfigurationError: If the model is invalid.
        """
        config = None if self.model is None else llm_config(self.model)
        if not self.server_side_tools:
            return config
        used_model = caller_model if config is None else config
        return used_model.with_settings(server_side_tools=list(self.server_side_tools))

    def check_model(self, model: str, spellings: Collection[str] = ()) -> None:
        """Check that a model is one of the worker's compatible models.

        Args:
            model: The model's name.
            spellings: All spellings of the model's name, in lower case.

        Raises:
            ToolRefusedError: If the model is not compatible. The message has the patterns.
        """
        patterns = self.compatible_models
        if not patterns:
            return
        for spelling in (model.lower(), *spellings):
            if any(fnmatchcase(spelling, pattern.lower()) for pattern in patterns):
                return
        raise ToolRefusedError(
            f"worker {self.name!r} is for models like {', '.join(patterns)}, and would be "
            f"done by {model!r}",
            hint="its file can name a model of its own",
        )

    def fill(self, inputs: Mapping[str, Any]) -> str:
        """Return the instructions after replacing placeholders by the values of inputs.

        Args:
            inputs: The values by name. Inputs with a default may be left out.

        Raises:
            ToolRefusedError: If an input is unknown, missing or of another type.
        """
        for name in inputs:
            if name not in self.inputs:
                raise ToolRefusedError(
                    f"worker {self.name!r} has no input {name!r}; its inputs: "
                    f"{', '.join(self.inputs) or 'none'}{did_you_mean(name, self.inputs)}"
                )
        values = {name: self._input_value(name, inputs) for name in self.inputs}
        # The instructions of a worker that a model generated may not include files.
        template = Instructions(self.instructions, values_only=self.generated)
        try:
            return template.filled(values, self._read_file_in_folder)
        except InstructionsError as error:
            raise ToolRefusedError(f"the instructions of worker {self.name!r}: {error}") from None

    def _read_file_in_folder(self, name: str) -> str:
        """Return the trusted content of a text file in the worker's folder."""
        path = self.file.parent / name
        if Path(name).name != name or self.read is None:
            raise ToolRefusedError(f"worker {self.name!r}: {name[:80]!r} is not a file beside it")
        return self.read(path).decode("utf-8", "replace").strip()

    def _input_value(self, name: str, inputs: Mapping[str, Any]) -> Any:
        declared = self.inputs[name]
        value = inputs.get(name, declared.default)
        if value is None:
            raise ToolRefusedError(f"worker {self.name!r} needs the input {name!r}")
        problem = shape.value_problem({"type": declared.type}, value)
        if problem is not None:
            raise ToolRefusedError(f"worker {self.name!r}, input {name!r}: {problem}")
        return value


def from_front_matter(
    front: frontmatter.FrontMatter,
    name: str,
    *,
    generated: bool = False,
    read: Read | None = None,
) -> WorkerDefinition:
    """Parse a worker's file, after its front matter was parsed.

    Args:
        front: The front matter and the text of the file.
        name: The name of the worker.
        generated: Whether a model created the worker.
        read: Returns the trusted content of neighbouring files; None to read none.

    Raises:
        ConfigurationError: If the file is invalid. The message names file, line and key.
    """
    table: dict[str, Any] = {str(key): value for key, value in front.table.items()}
    if "toolsets" in table:
        front = _rename_toolsets(front, table)
    _rename_policy(front, table)
    if "output_schema_ref" in table:
        table["result"] = _load_schema(front, table, read)
    table["connections"] = _connection_settings(front, table)
    if not front.text:
        raise front.error("there are no instructions after the front matter")
    # The code below sets these fields of WorkerDefinition; a file may not contain them.
    for key in _INTERNAL_FIELDS:
        if key in table:
            raise front.error(f"unknown key{did_you_mean(key, _keys())}", (key,), _known_keys())
    fields: dict[str, Any] = {
        "name": name,
        **table,
        "instructions": front.text,
        "front": front,
        "generated": generated,
        "read": read,
    }
    try:
        worker = WorkerDefinition.model_validate(fields)
    except ValidationError as error:
        raise _explain_error(front, error) from None
    _check_values(front, worker, name)
    return worker


def _rename_toolsets(
    front: frontmatter.FrontMatter, table: dict[str, Any]
) -> frontmatter.FrontMatter:
    """Replace the old key ``toolsets`` in the table by ``connections``.

    Returns:
        Front matter that knows the lines of ``toolsets`` under the new key, for error messages.
    """
    if "connections" in table:
        raise front.error("give only one of connections and toolsets", ("toolsets",))
    table["connections"] = _convert_toolsets(table.pop("toolsets"))
    # Errors in the connections name the lines of the toolsets.
    lines = dict(front.lines)
    for keys, line in front.lines.items():
        if keys and keys[0] == "toolsets":
            lines["connections", *keys[1:]] = line
    return replace(front, lines=lines)


def _convert_toolsets(value: Any) -> Any:
    """Convert llm-do's ``toolsets`` to ``connections``. Only the rules of ``shell`` differ.

    In llm-do, the pattern ``git log`` of a rule also matches ``git log -5``. In delf, it matches
    only ``git log`` by default, so :func:`_prefix_rule` changes each rule.
    """
    if not isinstance(value, dict):
        return value
    toolsets = cast("dict[str, Any]", value)
    shell: Any = toolsets.get("shell")
    if not isinstance(shell, dict):
        return toolsets
    shell_settings = cast("dict[str, Any]", shell)
    rules = shell_settings.get("rules")
    if not isinstance(rules, list):
        return toolsets
    prefix_rules = [_prefix_rule(rule) for rule in cast("list[Any]", rules)]
    return {**toolsets, "shell": {**shell_settings, "rules": prefix_rules}}


def _prefix_rule(rule: Any) -> Any:
    """Convert one of llm-do's rules for shell commands to a rule of delf.

    In llm-do, the rule ``git log`` also matches longer commands, such as ``git log -5``.
    """
    if not isinstance(rule, dict):
        return rule
    # With "reading", the rule ``git log`` also matches ``git log -5``, as in llm-do, but delf asks
    # a person about a longer command that may do more than read files.
    converted = {"match": "reading", **cast("dict[str, Any]", rule)}
    # llm-do allows only commands on files in these folders. delf cannot check that, so a person
    # has to.
    allowed_folders = converted.pop("sandbox_paths", None)
    if allowed_folders:
        converted["approval_required"] = True
    return converted


def _rename_policy(front: frontmatter.FrontMatter, table: dict[str, Any]) -> None:
    """Rename the old key ``attachment_policy`` to ``attachments``, and its fields accordingly."""
    policy: Any = table.pop("attachment_policy", None)
    if policy is None:
        return
    if "attachments" in table:
        raise front.error(
            "give only one of attachments and attachment_policy",
            ("attachment_policy",),
        )
    if not isinstance(policy, dict):
        raise front.error("it must be a table", ("attachment_policy",))
    attachments: dict[str, Any] = {}
    for key, value in cast("dict[Any, Any]", policy).items():
        if key not in _POLICY_KEYS:
            close = did_you_mean(str(key), _POLICY_KEYS)
            raise front.error(f"unknown key{close}", ("attachment_policy", str(key)))
        attachments[_POLICY_KEYS[key]] = value
    table["attachments"] = attachments


def _load_schema(
    front: frontmatter.FrontMatter, table: dict[str, Any], read: Read | None
) -> dict[str, Any]:
    """Load the JSON Schema from the file that ``output_schema_ref`` names, and remove that key."""
    where = ("output_schema_ref",)
    name = table.pop("output_schema_ref")
    if "result" in table:
        raise front.error("result and output_schema_ref cannot both be set", where)
    if not isinstance(name, str) or Path(name).name != name or read is None:
        raise front.error("it must be the name of a JSON file in the worker's folder", where)
    try:
        schema: Any = json.loads(read(front.path.parent / name))
    except (ValueError, RecursionError) as error:
        raise front.error(f"{name} is not JSON: {error}", where) from None
    if not isinstance(schema, dict):
        raise front.error(f"{name} is not a JSON Schema", where)
    return cast("dict[str, Any]", schema)


def _keys() -> list[str]:
    return [key for key in WorkerDefinition.model_fields if key not in _INTERNAL_FIELDS]


def _known_keys() -> str:
    return f"known keys: {', '.join(_keys())}"


def _connection_settings(
    front: frontmatter.FrontMatter, table: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the connections of a worker as a mapping from name to settings.

    A list in the file names connections without settings.
    """
    value: Any = table.get("connections") or {}
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list):
        names = cast("list[Any]", value)
        if all(isinstance(name, str) for name in names):
            return {name: {} for name in names}
    if isinstance(value, dict):
        table_by_name = cast("dict[Any, Any]", value)
        return {str(name): {} if item is None else item for name, item in table_by_name.items()}
    raise front.error("a list of names, or a table of settings by name", ("connections",))


def _explain_error(front: frontmatter.FrontMatter, error: ValidationError) -> Exception:
    """Convert the first problem of a validation error to an error with file, line and key."""
    first = error.errors(include_url=False, include_input=False)[0]
    keys = first["loc"]
    if first["type"] == "extra_forbidden":
        is_top_level = len(keys) == 1
        if not is_top_level:
            return front.error("unknown key", keys)
        close = did_you_mean(str(keys[-1]), _keys())
        return front.error(f"unknown key{close}", keys, _known_keys())
    return front.error(first["msg"].removeprefix("Value error, "), keys)


def _check_values(front: frontmatter.FrontMatter, worker: WorkerDefinition, name: str) -> None:
    """Check those values that the pydantic model cannot check."""
    check_name(worker.name, front.place(("name",)))
    if worker.name != name:
        raise front.error(
            f"{worker.name!r} differs from the name {name!r} of the file",
            ("name",),
            f"remove the key `name`, or set it to {name}",
        )
    server_side_tools = {"server_side_tools": list(worker.server_side_tools)}
    _check_model_key(front, "server_side_tools", lambda: normalise_settings(server_side_tools))
    _check_model_key(front, "model", lambda: llm_config(worker.model))
    if worker.result is not None:
        problem = shape.schema_problem(worker.result)
        if problem is not None:
            raise front.error(f"it is not a JSON Schema: {problem}", ("result",))
    _check_instructions(front, worker)
    if worker.generated:
        _check_generated(front, worker)
    elif worker.maker is not None:
        raise front.error("only a generated worker has a maker", ("maker",))


def _check_model_key(front: frontmatter.FrontMatter, key: str, check: Callable[[], object]) -> None:
    """Run a check of a key that configures the model; an error names the line of the key."""
    try:
        check()
    except ModelConfigurationError as error:
        raise front.error(error.message, (key,), error.hint or "") from None


def _check_instructions(front: frontmatter.FrontMatter, worker: WorkerDefinition) -> None:
    """Check that a worker's instructions are a template, and use only the worker's inputs."""
    try:
        variables = list(Instructions(front.text, values_only=worker.generated).names())
    except InstructionsError as error:
        raise ConfigurationError(f"{front.place_in_text(error.line)}: {error}") from None
    for placeholder, line in variables:
        if placeholder not in worker.inputs:
            suggestion = did_you_mean(placeholder, worker.inputs)
            raise ConfigurationError(
                f"{front.place_in_text(line)}: there is no input {placeholder!r}{suggestion}",
                hint=f"inputs: {', '.join(worker.inputs) or 'none'}",
            )


def _check_generated(front: frontmatter.FrontMatter, worker: WorkerDefinition) -> None:
    """Check that a generated worker's file only restricts the connections of the worker's maker.

    The maker is the agent or the worker that created the worker. The worker gets the maker's model,
    server-side tools, sandbox and limits, so the file must not set these.

    Raises:
        ConfigurationError: If the file sets one of these, adds a connection, or gives a connection
            settings other than ``allow`` and ``allow_workers``.
    """
    for key in _GIVEN_BY_MAKER:
        if key in worker.model_fields_set:
            raise front.error("a generated worker takes this setting from its maker", (key,))
    for name, settings in worker.connections.items():
        other_keys = sorted(settings.keys() - {"allow", "allow_workers"})
        # An import path such as ``desk.connection.Desk`` would create a connection that the maker
        # does not have, and the name TOOLS would load the functions of a file ``tools.py``.
        is_import_path = "." in name
        if is_import_path or name == TOOLS or other_keys:
            raise front.error(
                "a generated worker has connections of its maker, by name, and may allow less",
                ("connections", name, *other_keys[:1]),
            )


def check_name(name: str, where: str) -> None:
    """Check the name of a worker.

    Raises:
        ConfigurationError: If the name is invalid. The message has the rules for names.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{where}: {name[:80]!r} is not a name of a worker",
            hint="small letters, digits, - and _, as summarise_file",
        )
