"""Prefixes that families of models want before a text, by their model cards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from delf.protocols.embedder import EmbeddingKind

# The names that models give to their prompts for a kind of text.
_PROMPT_NAMES: Final[Mapping[EmbeddingKind, tuple[str, ...]]] = {
    "query": ("query",),
    "passage": ("passage", "document"),
}
_BGE: Final = "Represent this sentence for searching relevant passages: "
_PREFIXES: Final[tuple[tuple[str, str, str], ...]] = (
    # A part of the model's name, before queries, before passages.
    ("e5-mistral", "Instruct: Retrieve relevant passages\nQuery: ", ""),
    ("e5-large-instruct", "Instruct: Retrieve relevant passages\nQuery: ", ""),
    ("e5-", "query: ", "passage: "),
    ("bge-m3", "", ""),
    ("bge-", _BGE, ""),
    ("mxbai-embed", _BGE, ""),
    ("arctic-embed", "query: ", ""),
    ("nomic-embed", "search_query: ", "search_document: "),
    ("embeddinggemma", "task: search result | query: ", "title: none | text: "),
)


def prefix_of(model: str, kind: EmbeddingKind, declared_prompts: Mapping[str, str]) -> str:
    """Return the prefix that a model needs before a text; empty if the model needs none.

    Args:
        model: The model's name or path.
        kind: The kind of text: ``query`` or ``passage``.
        declared_prompts: The prompts that the model declares, by name; these take precedence.
    """
    for name in _PROMPT_NAMES[kind]:
        if declared_prompts.get(name):
            return declared_prompts[name]
    for part, query, passage in _PREFIXES:
        if part in model.lower():
            return query if kind == "query" else passage
    return ""
