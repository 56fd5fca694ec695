"""The connection ``llm`` of delf, by which scripts ask a language model."""
