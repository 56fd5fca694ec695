"""Model answers from a file: record once, replay without a key or a network."""

from delf_model_recorded.model import RecordedModel
from delf_model_recorded.recorder import RecordingModel

__all__ = ["RecordedModel", "RecordingModel"]
