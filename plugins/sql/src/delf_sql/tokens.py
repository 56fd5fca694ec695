"""Tokens of a statement by sqlglot, and the normalised text made from them.

If the database parsed a statement differently from delf, every check could be bypassed. So the
original text is never sent: only tokens that the database certainly reads the same way are
accepted, everything between them must be blank or a comment, and the tokens are sent with single
blanks between them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from delf.errors import ToolRefusedError
from delf_sql.target import Dialect

if TYPE_CHECKING:
    from sqlglot.dialects.dialect import Dialect as Grammar

Kind = Literal["word", "name", "string", "number", "operator"]

# sqlglot's names of dialects that SQLAlchemy names differently.
_SQLGLOT_NAMES: Final[dict[Dialect, str]] = {
    "postgresql": "postgres",
    "mssql": "tsql",
    "cockroachdb": "postgres",
    "clickhousedb": "clickhouse",
    "awsathena": "athena",
    "mariadb": "mysql",
}

# The forms of tokens that the database surely reads as sqlglot does. A token of any other form is
# refused. An operator must not contain the sign of a comment, such as ``--``.
_WORD: Final = r"[^\W\d][\w$]*"
_NUMBER: Final = r"0[xX][0-9a-fA-F]+|[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?"
_OPERATOR: Final = r"(?!.*(?:--|/\*|\*/))[-+*/<>=~!@\#%^&|?:.,;()\[\]]+"
_PLAIN: Final = r"'(?:[^']|'')*'"
_ESCAPED: Final = r"'(?:[^'\\]|''|\\.)*'"
_DIGITS: Final = r"[bBxX]'[0-9a-fA-F]*'"
_DOUBLE_NAME: Final = r'"(?:[^"]|"")+"'
_BACKTICK_NAME: Final = r"`(?:[^`]|``)+`"
_DOLLAR: Final = r"(\$(?:[^\W\d]\w*)?\$)(?:(?!\1).)*\1"
_UNICODE: Final = r"[uU]&'(?:[^'\\]|''|\\\\|\\[0-9a-fA-F]{4}|\\\+[0-9a-fA-F]{6})*'"

_SHAPES: Final[dict[Dialect, Sequence[tuple[Kind, str]]]] = {
    "postgresql": (
        ("word", _WORD),
        ("number", _NUMBER),
        ("operator", _OPERATOR),
        ("string", f"[nN]?{_PLAIN}|[eE]{_ESCAPED}|{_DIGITS}"),
        ("string", _UNICODE),
        ("string", _DOLLAR),
        ("name", _DOUBLE_NAME),
    ),
    "mysql": (
        ("word", _WORD),
        ("number", f"0b[01]+|{_NUMBER}"),
        ("operator", r"(?!.*\#)" + _OPERATOR),
        ("string", rf'[nN]?{_ESCAPED}|"(?:[^"\\]|""|\\.)*"|{_DIGITS}'),
        ("name", _BACKTICK_NAME),
    ),
    "sqlite": (
        ("word", _WORD),
        ("number", _NUMBER),
        ("operator", _OPERATOR),
        ("string", f"{_PLAIN}|[xX]'[0-9a-fA-F]*'"),
        ("name", rf"{_DOUBLE_NAME}|{_BACKTICK_NAME}|\[[^\]]+\]"),
    ),
    "duckdb": (
        ("word", r"[^\W\d]\w*"),
        ("number", _NUMBER),
        ("operator", _OPERATOR),
        ("string", f"{_PLAIN}|[eE]{_ESCAPED}"),
        ("string", _DOLLAR),
        ("name", _DOUBLE_NAME),
        ("operator", r"[{}]"),  # around the fields of a struct, or the entries of a map
    ),
}
# Token patterns for all other dialects: the subset of SQL that all of them read the same way,
# without backslashes, string prefixes and quotes inside names.
_COMMON_SHAPES: Final[Sequence[tuple[Kind, str]]] = (
    ("word", r"[^\W\d]\w*"),
    ("number", r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?"),
    ("operator", r"(?!.*(?:--|/\*|\*/|//|\#))[-+*/<>=~!@^%&|?:.,;()\[\]]+"),
    ("string", r"'(?:[^'\\]|'')*'"),
    ("name", r'"[^"\\]+"|`[^`\\]+`|\[[^\[\]\\]+\]'),
)
# Between tokens, only blanks and comments of these forms are accepted. Nested comments are refused,
# because only some databases support them. For MySQL and untested databases, ``/*! … */`` is
# refused because MySQL runs its text.
_BLOCK: Final = r"/\*(?:(?!/\*|\*/).)*\*/"
_GAPS: Final[dict[Dialect, str]] = {
    "postgresql": rf"(?:[ \t\n]|--[^\n]*(?:\n|\Z)|{_BLOCK})*",
    "mysql": rf"(?:[ \t\n]|(?:\#|--(?=[ \t\n]|\Z))[^\n]*(?:\n|\Z)|(?!/\*M?!){_BLOCK})*",
    "sqlite": rf"(?:[ \t\n]|--[^\n]*(?:\n|\Z)|{_BLOCK})*",
    "duckdb": rf"(?:[ \t\n]|--[^\n]*(?:\n|\Z)|{_BLOCK})*",
}
_OTHER_GAPS: Final = rf"(?:[ \t\n]|--[ \t][^\n]*(?:\n|\Z)|(?!/\*[!+]){_BLOCK})*"
_LONGEST_SHOWN: Final = 30
_BACKTRACKED_PER_TOKEN: Final = 5
# The smallest limit on the tokens that sqlglot may backtrack in one statement.
#
# Ordinary statements backtrack less than one token for each of their tokens. Nested type names
# backtrack twice as many tokens with each level.
_MIN_BACKTRACKED_TOKENS: Final = 20_000
_NO_BLANK_AFTER: Final = frozenset({".", ":", "@", "@@", "!"})
_NO_BLANK_BEFORE: Final = frozenset({".", ":"})

# Operators that sqlglot splits into two tokens.
_SHIFTS: Final = frozenset({"<<", ">>"})


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a statement.

    Args:
        kind: The kind; ``name`` is a quoted name.
        text: The token's text; of a ``name``, the part between the quotes.
        start: The start position.
        end: The end position.
    """

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The token in capitals if it may be a keyword; empty otherwise."""
        return self.text.upper() if self.kind == "word" else ""


@functools.cache
def _sqlglot_classes(dialect: Dialect) -> tuple[Any, Any, Grammar]:
    """Return the tokenizer class, the parser class and the grammar of a dialect.

    The tokenizer must not treat keywords as commands, because it would skip the text after them.
    """
    # Import from ``sqlglot`` itself, not from a module inside it. If two threads import a package
    # and a module inside it at the same time, Python resolves the deadlock by giving one of them a
    # half-initialised module.
    from sqlglot import Dialect as SqlglotDialect

    name = _SQLGLOT_NAMES.get(dialect, dialect)
    if SqlglotDialect.get(name) is None:  # a dialect of SQLAlchemy that sqlglot does not know
        name = ""  # sqlglot's own dialect
    grammar: Any = SqlglotDialect.get_or_raise(name)
    base: Any = grammar.tokenizer_class
    tokenizer = type("Words", (base,), {"COMMANDS": set[Any]()})
    return tokenizer, _limit_backtracking(grammar.parser_class), grammar


def _limit_backtracking(parser_class: Any) -> Any:
    """Return a subclass of a sqlglot parser that raises RecursionError after much backtracking.

    Each level of nesting in a text may double sqlglot's backtracking. The error is RecursionError,
    because callers of :func:`parse` already handle this error for text that is nested too deeply.
    """

    def retreat(parser: Any, index: int) -> None:
        """Go back to an earlier token. The parser calls this function instead of sqlglot's own."""
        parser.backtracked += parser._index - index  # noqa: SLF001 - there is no other way to see it
        token_count = parser._tokens_size  # noqa: SLF001
        if parser.backtracked > _BACKTRACKED_PER_TOKEN * token_count + _MIN_BACKTRACKED_TOKENS:
            raise RecursionError  # as for text that is nested too deeply
        parser_class._retreat(parser, index)  # noqa: SLF001

    return type("Bounded", (parser_class,), {"backtracked": 0, "_retreat": retreat})


def parse(text: str, dialect: Dialect) -> list[Any]:
    """Parse a text to trees with sqlglot.

    Raises:
        SqlglotError: If sqlglot cannot parse the text.
        RecursionError: If the text is nested too deeply.
    """
    tokenizer, parser, grammar = _sqlglot_classes(dialect)
    return parser(dialect=grammar).parse(tokenizer(grammar).tokenize(text), text)


def normalise(text: str, dialect: Dialect) -> tuple[str, list[Token]]:
    """Return a statement with single blanks and without comments, and its tokens.

    Raises:
        ToolRefusedError: For anything that the database might parse differently than sqlglot.
    """
    from sqlglot import TokenError

    text = text.replace("\r\n", "\n")
    try:
        tokenizer, _, grammar = _sqlglot_classes(dialect)
        sqlglot_tokens = tokenizer(grammar).tokenize(text)
    except TokenError:
        raise ToolRefusedError(
            "the statement has a string, a quoted name or a comment without an end"
        ) from None
    previous_end = 0
    tokens: list[Token] = []
    for token in sqlglot_tokens:
        start = token.start
        end = token.end + 1
        _check_gap(text, previous_end, start, dialect)  # only blanks and comments are allowed
        previous_end = end
        # sqlglot joins some keywords, such as ``GROUP BY``, to a single token. _tokens() splits
        # such a token into its words.
        tokens += _tokens(text[start:end], start, dialect)
    _check_gap(text, previous_end, len(text), dialect)
    return _join(text, tokens)


def _check_gap(text: str, start: int, end: int, dialect: Dialect) -> None:
    """Raise ToolRefusedError unless the text between two tokens is only blanks and comments.

    Comments must have a form that the database reads in the same way as sqlglot.
    """
    gap = text[start:end]
    for sign in gap:
        is_usual = sign.isprintable() or sign in "\t\n"
        if not is_usual:
            raise ToolRefusedError(
                f"the statement has an unusual character (U+{ord(sign):04X}) outside of quotes: "
                "write plain blanks and line breaks"
            )
    # Refuse tokens that overlap, too: sqlglot should never return such tokens.
    has_gap = start <= end
    if has_gap and _matches(_GAPS.get(dialect, _OTHER_GAPS), gap):
        return
    comment_start = gap.rfind("/*")
    if comment_start >= 0 and gap.find("*/", comment_start) < 0:
        raise ToolRefusedError("the statement has a comment without an end")
    raise ToolRefusedError(
        f"the statement has a comment that databases read differently: {_shown(gap.strip())}"
    )


def _tokens(piece: str, start: int, dialect: Dialect) -> Iterable[Token]:
    """Yield the tokens of a piece of a statement.

    A piece that joins words, such as sqlglot's ``GROUP BY``, gives a token for each word.
    """
    for kind, shape in _SHAPES.get(dialect, _COMMON_SHAPES):
        if _matches(shape, piece):
            text = _inner(piece) if kind == "name" else piece
            yield Token(kind, text, start, start + len(piece))
            return
    parts = list(re.finditer(r"[^ \t\n]+", piece))
    if len(parts) < 2 or not all(_matches(_WORD, part.group()) for part in parts):
        raise ToolRefusedError(
            f"the statement has {_shown(piece)}, which is ambiguous: write it plainly, "
            "and pass values in params, as ? with a list or :name with a dict"
        )
    for part in parts:
        yield Token("word", part.group(), start + part.start(), start + part.end())


def _inner(piece: str) -> str:
    """Return a quoted name without its quotes, and with doubled quotes made single."""
    quote = piece[-1]
    if quote == "]":
        return piece[1:-1]
    return piece[1:-1].replace(quote * 2, quote)


def _join(text: str, tokens: Sequence[Token]) -> tuple[str, list[Token]]:
    """Join tokens with single blanks; return the text, and the tokens at their new positions.

    Raises:
        ToolRefusedError: If a number stands directly before a word, number or string.
    """
    parts: list[str] = []
    joined: list[Token] = []
    position = 0
    before: Token | None = None
    for token in tokens:
        if before is not None:
            _check_number_ends(before, token)
            if not _forbids_blank(before, token):
                parts.append(" ")
                position += 1
        piece = text[token.start : token.end]
        parts.append(piece)
        joined.append(Token(token.kind, token.text, position, position + len(piece)))
        position += len(piece)
        before = token
    return "".join(parts), joined


def _check_number_ends(before: Token, token: Token) -> None:
    """Refuse a number that directly precedes a word, number or string, as in ``1e``."""
    is_adjacent = before.end == token.start
    if before.kind == "number" and is_adjacent and token.kind in ("word", "number", "string"):
        raise ToolRefusedError(
            f"the statement has {_shown(before.text + token.text)}, which is ambiguous: "
            "put a space between"
        )


def _forbids_blank(before: Token, token: Token) -> bool:
    """Return True if a blank between two tokens would change the statement's meaning."""
    has_blank_already = before.end != token.start
    if has_blank_already:
        return False
    operator_before = before.text if before.kind == "operator" else ""
    operator = token.text if token.kind == "operator" else ""
    if operator == "(":  # f(x) is a call; in MySQL, f (x) is none
        return before.kind in ("word", "name")
    if operator_before in _NO_BLANK_AFTER:  # as in :name
        return True
    if operator in _NO_BLANK_BEFORE:  # as in a.b
        return True
    is_pair = bool(operator_before and operator)
    return is_pair and operator_before + operator in _SHIFTS  # the two tokens of ``<<``


def _shown(piece: str) -> str:
    return repr(piece if len(piece) <= _LONGEST_SHOWN else f"{piece[:_LONGEST_SHOWN]}…")


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


def _matches(pattern: str, text: str) -> bool:
    return _compiled(pattern).fullmatch(text) is not None
