"""What ``from delf import NAME`` gives from delf's own plugins, for type checkers and editors.

Generated: cd tests && python -m support.exported. It is never imported. A name whose plugin is
not installed is unknown.
"""

import delf.tools.connection
import delf_calendar.connection
import delf_docs.connection
import delf_drive.connection
import delf_filesystem.connection
import delf_gmail.connection
import delf_google.settings
import delf_mcp.connection
import delf_memory_semantic.recall
import delf_openapi.connection
import delf_sheets.connection
import delf_shell.connection
import delf_skills.connection
import delf_sql.connection
import delf_sql.settings
import delf_strategy_stream.profile
import delf_web.connection
import delf_web.search.connection
import delf_web.search.settings
import delf_workers.connection
import pathlib
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from delf_chat.command import Chat as Chat
from delf_chat.command import ChatMessage as ChatMessage
from delf_chat.command import ConversationCompressionError as ConversationCompressionError
from delf_chat.command import terminal_chat as terminal_chat
from delf_console.run import task_printer as task_printer
from delf_devkit import testing as testing
from delf_engine.agent import Agent as Agent
from delf_engine.agent_context import plugin_context as plugin_context
from delf_engine.config import AgentConfig as AgentConfig
from delf_engine.handle import TaskHandle as TaskHandle
from delf_engine.project.project import load_project as load_project
from delf_engine.response import Response as Response
from delf_engine.views.records import StreamEvent as StreamEvent
from delf_engine.views.snapshot import StreamSnapshot as StreamSnapshot
from delf_engine.views.trace import Trace as Trace
from delf_evals.program import Evaluations as Evaluations
from delf_memory_semantic import Memory as Memory
from delf_routines.connection import RoutineTools as RoutineTools
from delf_routines.program import Routines as Routines
from delf_routines.running import RoutineStrategy as RoutineStrategy
from delf_runner_dbos.queue import task_queue as task_queue
from delf_runner_dbos.schedules import open_schedules as open_schedules
from delf_serve.command import http_server as http_server
from delf_serve.people_tasks import people_tasks as people_tasks
from delf_sql.connection import SQLSchemaError as SQLSchemaError
from delf_strategy_codegen.strategy import CodegenStrategy as CodegenStrategy
from delf_strategy_stream.strategy import StreamStrategy as StreamStrategy
from pydantic import SecretStr
from typing import Any
from typing import Literal

__all__ = [
    "APITool",
    "Agent",
    "AgentConfig",
    "Calendar",
    "Chat",
    "ChatMessage",
    "CodegenStrategy",
    "ConversationCompressionError",
    "Docs",
    "Drive",
    "Evaluations",
    "Filesystem",
    "Gmail",
    "MCP",
    "Memory",
    "Profile",
    "Recall",
    "Response",
    "RoutineStrategy",
    "RoutineTools",
    "Routines",
    "SQL",
    "SQLSchemaError",
    "Sheets",
    "Shell",
    "Skills",
    "StreamEvent",
    "StreamSnapshot",
    "StreamStrategy",
    "TaskHandle",
    "Trace",
    "Web",
    "WebSearch",
    "Workers",
    "http_server",
    "load_project",
    "open_schedules",
    "people_tasks",
    "plugin_context",
    "task_printer",
    "task_queue",
    "terminal_chat",
    "testing",
]

class APITool(delf_openapi.connection.APITool):
    def __init__(
        self,
        spec: str | delf_openapi.connection.Path | Mapping[str, Any] | None = ...,
        *,
        name: str | None = ...,
        allow: delf_openapi.connection.Permission = ...,
        confirm: delf_openapi.connection.Permission = ...,
        metadata: Mapping[str, Any] | None = ...,
        trust: delf_openapi.connection.Trust | Mapping[str, delf_openapi.connection.Trust] | None = ...,
        contents: Mapping[str, Sequence[str]] | None = ...,
        llm: str | delf_openapi.connection.LLMConfig | None = ...,
        validate: Literal['off', 'warn', 'raise'] = ...,
        check_arguments: Literal['warn', 'raise'] = ...,
        base_url: str | None = ...,
        servers: Sequence[str] = ...,
        headers: Mapping[str, str | SecretStr] = ...,
        params: Mapping[str, str | SecretStr] = ...,
        path_params: Mapping[str, str | SecretStr] = ...,
        api_key: str | SecretStr | None = ...,
        token: str | SecretStr | None = ...,
        username: str | None = ...,
        password: str | SecretStr | None = ...,
        client_id: str | None = ...,
        client_secret: str | SecretStr | None = ...,
        token_url: str | None = ...,
        scopes: Sequence[str] = ...,
        credentials: Mapping[str, str | SecretStr] = ...,
        effects: Mapping[str, Literal['read', 'write', 'irreversible']] = ...,
        refs: Sequence[str | pathlib.Path] = ...,
        cache: bool = ...,
        cache_dir: str | pathlib.Path | None = ...,
        enrich: bool = ...,
        sample: bool = ...,
        operations: int = ...,
        timeout: float = ...,
        retries: int = ...,
        max_wait: float = ...,
        max_response_bytes: int = ...,
        max_spec_bytes: int = ...,
    ) -> None: ...

class Calendar(delf_calendar.connection.Calendar):
    def __init__(
        self,
        oauth_credentials: str | pathlib.Path | None | delf_google.settings.GoogleSettings = ...,
        *,
        name: str | None = ...,
        allow: delf.tools.connection.Permission = ...,
        confirm: delf.tools.connection.Permission = ...,
        metadata: Mapping[str, Any] | None = ...,
        trust: delf.tools.connection.Trust | Mapping[str, delf.tools.connection.Trust] | None = ...,
        contents: Mapping[str, Sequence[str]] | None = ...,
        service_account: str | pathlib.Path | None = ...,
        delegated_user: str | None = ...,
        token: str | SecretStr | None = ...,
        account: str = ...,
        base_url: str | None = ...,
        timeout: float = ...,
        max_bytes: int = ...,
    ) -> None: ...

class Docs(delf_docs.connection.Docs):
    def __init__(
        self,
        oauth_credentials: str | pathlib.Path | None | delf_google.settings.GoogleSettings = ...,
        *,
        name: str | None = ...,
        allow: delf.tools.connection.Permission = ...,
        confirm: delf.tools.connection.Permission = ...,
        metadata: Mapping[str, Any] | None = ...,
        trust: delf.tools.connection.Trust | Mapping[str, delf.tools.connection.Trust] | None = ...,
        contents: Mapping[str, Sequence[str]] | None = ...,
        service_account: str | pathlib.Path | None = ...,
        delegated_user: str | None = ...,
        token: str | SecretStr | None = ...,
        account: str = ...,
        base_url: str | None = ...,
        timeout: float = ...,
        max_bytes: int = ...,
    ) -> None: ...

class Drive(delf_drive.connection.Drive):
    def __init__(
        self,
        oauth_credentials: str | pathlib.Path | None | delf_google.settings.GoogleSettings = ...,
        *,
        name: str | None = ...,
        allow: delf.tools.connection.Permission = ...,
        confirm: delf.tools.connection.Permission = ...,
        metadata: Mapping[str, Any] | None = ...,
        trust: delf.tools.connection.Trust | Mapping[str, delf.tools.connection.Trust] | None = ...,
        contents: Mapping[str, Sequence[str]] | None = ...,
        service_account: str | pathlib.Path | None = ...,
        delegated_user: str | None = ...,
        token: str | SecretStr | None = ...,
        account: str = ...,
        base_url: str | None = ...,
        timeout: float = ...,
        max_bytes: int = ...,
    ) -> None: ...

class Filesystem(delf_filesystem.connection.Filesystem):
    def __init__(
        self,
        *,
        name: str | None = ...,
        allow: delf.tools.connection.Permission = ...,
        confirm: delf.tools.connection.Permission = ...,
        metadata: Mapping[str, Any] | None = ...,
        trust: delf.tools.connection.Trust | Mapping[str, delf.tools.connection.Trust] | None = ...,
        contents: Mapping[str, Sequence[str]] | None = ...,
        roots: Mapping[str, Any] = ...,
    ) -> None: ...

class Gmail(delf_gmail.connection.Gmail):
    def __init__(
        self,
        oauth_credentials: str | pathlib.Path | None | delf_google.settings.GoogleSettings = ...,
        *,
        name: str | None = ...,
        allow: delf.tools.connection.Permission = ...,
        confirm: delf.tools.connection.Permission = ...,
        metadata: Mapping[str, Any] | None = ...,
        trust: delf.tools.connection.Trust | Mapping[str, delf.tools.connection.Trust] | None = ...,
        contents: Mapping[str, Sequence[str]] | None = ...,
        service_account: str | pathlib.Path | None = ...,
        delegated_user: str | None = ...,
        token: str | SecretStr | None = ...,
        account: str = ...,
        base_url: str | None = ...,
        timeout: float = ...,
        max_bytes: int = ...,
    ) -> None: ...

class MCP(delf_mcp.connection.MCP):
    def __init__(
        self,
        *,
        open_url: delf_mcp.connection.OpenURL | None = ...,
        name: str | None = ...,
        allow: delf.tools.connection.Permission = ...,
        confirm: delf.tools.connection.Permission = ...,
        metadata: Mapping[str, Any] | None = ...,
        trust: delf.tools.connection.Trust | Mapping[str, delf.tools.connection.Trust] | None = ...,
        contents: Mapping[str, Sequence[str]] | None = ...,
        command: str | None = ...,
        args: Sequence[str] = ...,
        env: Mapping[str, str | SecretStr] = ...,
        cwd: str | pathlib.Path | None = ...,
        url: str | None = ...,
        headers: Mapping[str, str | SecretStr] = ...,
        config: str | pathlib.Path | None = ...,
        server: str | None = ...,
        effects: Mapping[str, Literal['read', 'write', 'irreversible']] = ...,
        max_tools: int = ...,
        sample: bool = ...,
        sampling: Literal['ask', 'allow', 'refuse'] = ...,
        roots: Sequence[str | pathlib.Path] = ...,
        timeout: float = ...,
        start_timeout: float = ...,
        protocol: Literal['auto', 'legacy'] = ...,
        oauth: Literal['off', 'browser', 'client_credentials'] = ...,
        client_id: str | None = ...,
        client_secret: str | SecretStr | None = ...,
        private_key: str | SecretStr | None = ...,
        signing_algorithm: str = ...,
        issuer: str | None = ...,
        scopes: Sequence[str] = ...,
        client_metadata_url: str | None = ...,
        oauth_port: int = ...,
        tokens: str | pathlib.Path | None = ...,
    ) -> None: ...

class Profile(delf_strategy_stream.profile.Profile):
    def __init__(
        self,
        path: str | pathlib.Path | delf_strategy_stream.profile.ProfileSettings = ...,
        *,
        name: str | None = ...,
        allow: delf.tools.connection.Permission = ...,
        confirm: delf.tools.connection.Permission = ...,
        metadata: Mapping[str, Any] | None = ...,
        trust: delf.tools.connection.Trust | Mapping[str, delf.tools.connection.Trust] | None = ...,
        contents: Mapping[str, Sequence[str]] | None = ...,
        every: int = ...,
        review: bool = ...,
    ) -> None: ...

class Recall(delf_memory_semantic.recall.Recall):
    def __init__(
        self,
        namespace: str | delf_memory_semantic.recall.RecallSettings = ...,
        *,
        name: str | None = ...,
        allow: delf.tools.connection.Permission = ...,
        confirm: delf.tools.connection.Permission = ...,
        metadata: Mapping[str, Any] | None = ...,
        trust: delf.tools.connection.Trust | Mapping[str, delf.tools.connection.Trust] | None = ...,
        contents: Mapping[str, Sequence[str]] | None = ...,
        url: str | SecretStr | None = ...,
        embedding_model: str | None = ...,
        scope: Literal['person', 'agent'] = ...,
        max_messages: int = ...,
    ) -> None: ...

class SQL(delf_sql.connection.SQL):
    def __init__(
        self,
        url: str | SecretStr | None | delf_sql.settings.SQLSettings = ...,
        *,
        name: str | None = ...,
        allow: delf.tools.connection.Permission = ...,
        confirm: delf.tools.connection.Permission = ...,
        metadata: Mapping[str, Any] | None = ...,
        trust: delf.tools.connection.Trust | Mapping[str, delf.tools.connection.Trust] | None = ...,
        contents: Mapping[str, Sequence[str]] | None = ...,
        db_type: str | None = ...,
        host: str | None = ...,
        port: int | None = ...,
        database: str | None = ...,
        user: str | None = ...,
        password: str | SecretStr | None = ...,
        statement_timeout: float = ...,
        connect_timeout: float = ...,
        max_rows: int = ...,
        max_bytes: int = ...,
        pool_size: int = ...,
        schema_chars: int = ...,
        schema_tables: int = ...,
        sample: bool = ...,
        functions: Collection[str] = ...,
        role: str | None = ...,
        create: bool = ...,
        attach: Mapping[str, str | pathlib.Path] = ...,
    ) -> None: ...

class Sheets(delf_sheets.connection.Sheets):
    def __init__(
        self,
        oauth_credentials: str | pathlib.Path | None | delf_google.settings.GoogleSettings = ...,
        *,
        name: str | None = ...,
        allow: delf.tools.connection.Permission = ...,
        confirm: delf.tools.connection.Permission = ...,
        metadata: Mapping[str, Any] | None = ...,
        trust: delf.tools.connection.Trust | Mapping[str, delf.tools.connection.Trust] | None = ...,
        contents: Mapping[str, Sequence[str]] | None = ...,
        service_account: str | pathlib.Path | None = ...,
        delegated_user: str | None = ...,
        token: str | SecretStr | None = ...,
        account: str = ...,
        base_url: str | None = ...,
        timeout: float = ...,
        max_bytes: int = ...,
    ) -> None: ...

class Shell(delf_shell.connection.Shell):
    def __init__(
        self,
        *,
        name: str | None = ...,
        allow: delf.tools.connection.Permission = ...,
        confirm: delf.tools.connection.Permission = ...,
        metadata: Mapping[str, Any] | None = ...,
        trust: delf.tools.connection.Trust | Mapping[str, delf.tools.connection.Trust] | None = ...,
        contents: Mapping[str, Sequence[str]] | None = ...,
        rules: Sequence[Any] = ...,
        default: Any = ...,
        folder: str | pathlib.Path = ...,
        timeout: float = ...,
        max_output_bytes: int = ...,
        environment: Sequence[str] = ...,
    ) -> None: ...

class Skills(delf_skills.connection.Skills):
    def __init__(
        self,
        *,
        name: str | None = ...,
        allow: delf.tools.connection.Permission = ...,
        confirm: delf.tools.connection.Permission = ...,
        metadata: Mapping[str, Any] | None = ...,
        trust: delf.tools.connection.Trust | Mapping[str, delf.tools.connection.Trust] | None = ...,
        contents: Mapping[str, Sequence[str]] | None = ...,
        folders: Sequence[str | pathlib.Path] = ...,
        agents_md: bool = ...,
    ) -> None: ...

class Web(delf_web.connection.Web):
    def __init__(
        self,
        *,
        resolve: delf_web.connection.Resolve = ...,
        name: str | None = ...,
        allow: delf.tools.connection.Permission = ...,
        confirm: delf.tools.connection.Permission = ...,
        metadata: Mapping[str, Any] | None = ...,
        trust: delf.tools.connection.Trust | Mapping[str, delf.tools.connection.Trust] | None = ...,
        contents: Mapping[str, Sequence[str]] | None = ...,
        hosts: Sequence[str] = ...,
        others: Literal['allow', 'ask', 'refuse'] | None = ...,
        private: Sequence[str] = ...,
        ports: Sequence[int] = ...,
        user_agent: str = ...,
        rate: float = ...,
        timeout: float = ...,
        read_timeout: float = ...,
        max_bytes: int = ...,
    ) -> None: ...

class WebSearch(delf_web.search.connection.WebSearch):
    def __init__(
        self,
        llm: str | None | delf_web.search.settings.WebSearchSettings = ...,
        *,
        name: str | None = ...,
        allow: delf.tools.connection.Permission = ...,
        confirm: delf.tools.connection.Permission = ...,
        metadata: Mapping[str, Any] | None = ...,
        trust: delf.tools.connection.Trust | Mapping[str, delf.tools.connection.Trust] | None = ...,
        contents: Mapping[str, Sequence[str]] | None = ...,
        api_key: str | SecretStr | None = ...,
        base_url: str | None = ...,
        provider: Literal['auto', 'google', 'openai', 'anthropic'] = ...,
        searxng: str | None = ...,
        language: str | None = ...,
        domains: Sequence[str] = ...,
        results: int = ...,
        timeout: float = ...,
    ) -> None: ...

class Workers(delf_workers.connection.Workers):
    def __init__(
        self,
        *,
        name: str | None = ...,
        allow: delf.tools.connection.Permission = ...,
        confirm: delf.tools.connection.Permission = ...,
        metadata: Mapping[str, Any] | None = ...,
        trust: delf.tools.connection.Trust | Mapping[str, delf.tools.connection.Trust] | None = ...,
        contents: Mapping[str, Sequence[str]] | None = ...,
        folders: Sequence[str | pathlib.Path] = ...,
        allow_workers: Sequence[str] = ...,
    ) -> None: ...
