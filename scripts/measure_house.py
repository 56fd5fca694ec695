"""Measure the house at two commits: ``python scripts/measure_house.py BEFORE [AFTER]``.

Writes a table in Markdown: lines of source and tests, distributions, protocols, parameters of the
largest constructor, imports within functions, docstrings that begin with a question word, and old
words. Lines are those of Python files, blank ones and comments included.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import tarfile
from collections.abc import Iterator

Files = dict[str, str]
OLD_WORDS = re.compile(
    r"\b(Surroundings|RuntimeParts|TaskState|Judgement|Allowance|Settled|unsettled|hopeless|"
    r"relive|relived|Told|Slot)\b"
)
QUESTION = re.compile(
    r"(what|whatever|whether|who|whose|where|wherever|how|however)\b", re.IGNORECASE
)


def files_at(revision: str) -> Files:
    """Return the Python and project files of a commit, by path."""
    packed = subprocess.run(["git", "archive", revision], capture_output=True, check=True)
    found: Files = {}
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None and member.name.endswith((".py", "pyproject.toml")):
                found[member.name] = content.read().decode("utf-8", "replace")
    return found


def docstrings(tree: ast.AST) -> Iterator[str]:
    """Yield every docstring, those under variables included."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield text
                case _:
                    pass


def parameters(node: ast.ClassDef) -> int:
    """Count the parameters of a class's constructor."""
    inits = [f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"]
    if not inits:
        return 0
    given = inits[0].args
    return len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1


def measure(files: Files) -> dict[str, object]:
    """Measure the files of one commit."""
    source = {p: t for p, t in files.items() if p.endswith(".py") and "/src/" in p}
    tests = {p: t for p, t in files.items() if p.startswith("tests/") and p.endswith(".py")}
    support = {p: t for p, t in tests.items() if p.startswith("tests/support/")}
    projects = [p for p in files if p.endswith("/pyproject.toml") and "/src/" not in p]
    trees = {p: ast.parse(t) for p, t in source.items()}
    classes = [n for t in trees.values() for n in ast.walk(t) if isinstance(n, ast.ClassDef)]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    inner = {
        id(n)
        for t in trees.values()
        for f in ast.walk(t)
        if isinstance(f, functions)
        for n in ast.walk(f)
        if isinstance(n, (ast.Import, ast.ImportFrom))
    }
    largest = max(classes, key=parameters)
    texts = [text.strip() for tree in trees.values() for text in docstrings(tree)]
    return {
        "lines of source": _lines(source),
        "of which core": _lines({p: t for p, t in source.items() if p.startswith("core/")}),
        "lines of tests": _lines(tests),
        "of which support": _lines(support),
        "distributions": sum(p.startswith(("core/", "libs/", "plugins/")) for p in projects),
        "protocols": sum(any("Protocol" in ast.unparse(b) for b in c.bases) for c in classes),
        "parameters of the largest constructor": f"{parameters(largest)} ({largest.name})",
        "imports in functions": len(inner),
        "docstrings that begin with a question word": sum(bool(QUESTION.match(t)) for t in texts),
        "old words": sum(len(OLD_WORDS.findall(text)) for text in source.values()),
    }


def _lines(files: Files) -> int:
    return sum(text.count("\n") for text in files.values())


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("before", help="a commit, as its number, a branch or HEAD~100")
    parser.add_argument("after", nargs="?", default="HEAD", help="a later one (default: HEAD)")
    options = parser.parse_args()
    before, after = options.before, options.after
    try:
        old, new = measure(files_at(before)), measure(files_at(after))
    except subprocess.CalledProcessError as error:
        parser.error(f"git knows no such commit: {error.cmd[-1]}")
    print(f"| | {before} | {after} |\n|---|---|---|")
    for name, value in old.items():
        print(f"| {name} | {value} | {new[name]} |")


if __name__ == "__main__":
    main()
