"""Change the program that the next guests are made of: its archive, the library, the caches."""

for name in (sys.path[0], sys.modules["json"].__file__, sys.modules["json"].__cached__):
    attempt(f"write {name[-24:]}", posix.open, name, posix.O_WRONLY)
    attempt(f"append {name[-24:]}", posix.open, name, posix.O_RDWR | posix.O_APPEND)
    folder = name.rpartition("/")[0]
    attempt(f"a file beside {name[-24:]}", posix.open, f"{folder}/pwned", 0o102, 0o644)
    attempt(f"a folder beside {name[-24:]}", posix.mkdir, f"{folder}/pwned-folder")
    attempt(f"a nameless file beside {name[-24:]}", posix.open, folder, 0o20200002, 0o600)
open("mine", "w").write("x")
attempt("replace an input", posix.rename, "mine", INPUT)
attempt("remove an input", posix.unlink, INPUT)
attempt("rename an input", posix.rename, INPUT, f"{INPUT}.old")
