"""Change an input file by its bare name in the working folder, which is a link to it."""

if "input.csv" not in posix.listdir("."):
    print("ESCAPED the attempt shows nothing: there is no such name")
for flags in (1, 2, 1 | posix.O_APPEND, posix.O_TRUNC, posix.O_CREAT | 1):
    raw(f"open {flags:o}", 2, b"input.csv", flags, 0o600)
attempt("truncate", posix.truncate, "input.csv", 0)
raw("chmod", 90, b"input.csv", 0o777)
raw("chown", 92, b"input.csv", 0, 0)
raw("linkat through it", 265, AT_FDCWD, b"input.csv", AT_FDCWD, b"mine", 0x400)
raw("symlink", 88, FOLDER.encode() + b"/secret.txt", b"mine")
raw("symlinkat", 266, FOLDER.encode() + b"/secret.txt", AT_FDCWD, b"yours")
try:
    open("input.csv", "a").write("x")
    print("ESCAPED open to append")
except (OSError, PermissionError) as error:
    print("refused", error)
open("input.csv", "w").write("mine")  # a file of its own takes the name
