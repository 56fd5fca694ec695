"""Leave by the folder that the scratch space is laid over: remove it, rename it, go above it."""

here = posix.getcwd()
above = here.rpartition("/")[0]
attempt("rmdir", posix.rmdir, here)
attempt("rename", posix.rename, here, f"{above}/moved")
attempt("rename into itself", posix.rename, here, "inside")
attempt("a file above", posix.open, "../pwned", posix.O_CREAT | posix.O_WRONLY)
attempt("a folder above", posix.mkdir, f"{above}/pwned")
posix.mkdir("a")
posix.chdir("a")
posix.rename("../a", "../b")
attempt("a file two above", posix.open, "../../pwned", posix.O_CREAT | posix.O_WRONLY)
attempt("listing two above", posix.listdir, "../..")
scratch = posix.open("..", posix.O_RDONLY)
for name in ("..", "../..", "./../.."):
    attempt(f"open {name}", lambda name=name: posix.open(name, posix.O_RDONLY, dir_fd=scratch))
