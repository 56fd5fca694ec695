"""Model answers from a file: record once, replay without a key or a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_model_recorded.model import RecordedModel, RecordingMismatch
    from delf_model_recorded.recorder import RecordingModel

__all__ = ["RecordedModel", "RecordingMismatch", "RecordingModel"]


def __getattr__(name: str) -> Any:
    if name in ("RecordedModel", "RecordingMismatch"):
        from delf_model_recorded import model

        return getattr(model, name)
    if name == "RecordingModel":
        from delf_model_recorded.recorder import RecordingModel

        return RecordingModel
    raise AttributeError(f"module 'delf_model_recorded' has no attribute {name!r}")
