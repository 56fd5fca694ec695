"""Review a repository: git commands that only read, each by a rule, and the files, read only.

``review_repository.py FOLDER MODEL`` does it with your own; without arguments, with a made-up
repository and a recorded model.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from delf import Agent, Filesystem, Shell

HERE = Path(__file__).parent
RULES = [
    {"pattern": pattern, "approval_required": False}
    for pattern in (
        "git status --short",
        "git log --format=%s -n*",
        "git show --stat --format=%s HEAD",
        "git diff --stat HEAD~1",
    )
]
TASK = "Review the last commit: what it says, what it changes, and what it leaves to be done."


def review(folder: Path, llm: str) -> None:
    git = Shell(name="git", rules=RULES, folder=folder, environment=("PATH", "HOME"))
    code = Filesystem(name="code", roots={"repo": folder})
    with Agent(tools=[git, code], llm=llm, timeout=600) as agent:
        print(agent.run(TASK).raise_for_status().text)


def main() -> None:
    if len(sys.argv) > 2:
        review(Path(sys.argv[1]), sys.argv[2])
        return
    with TemporaryDirectory() as name:
        make_repository(Path(name))
        review(Path(name), f"recorded:{HERE / 'review_repository.jsonl'}")


def make_repository(folder: Path) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
        subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)

    git("init", "-q")
    (folder / "shop.py").write_text("def price(n):\n    return n * 20\n")
    git("add", ".")
    git("commit", "-qm", "A price")
    (folder / "shop.py").write_text("def price(n):\n    # later: rebates\n    return n * 21\n")
    git("commit", "-qam", "Prices are higher")


if __name__ == "__main__":
    main()
