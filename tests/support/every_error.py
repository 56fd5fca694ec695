"""Every class of error that is documented: the core's, and those of packages that have their own."""

from __future__ import annotations

import inspect
from typing import Final

from delf import errors
from delf.errors import DelfError
from delf_chat.summary import ConversationCompressionError
from delf_model_recorded import RecordingMismatch
from delf_sandbox.wire import WireError
from delf_sql.failures import SQLSchemaError

CORE: Final[dict[str, type[DelfError]]] = {
    name: cls
    for name, cls in vars(errors).items()
    if inspect.isclass(cls) and issubclass(cls, DelfError)
}
PACKAGES: Final[tuple[type[DelfError], ...]] = (
    ConversationCompressionError,
    RecordingMismatch,
    SQLSchemaError,
    WireError,
)
EVERY: Final = (*CORE.values(), *PACKAGES)
