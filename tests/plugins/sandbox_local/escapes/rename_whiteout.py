"""Have a device left behind by a file that is renamed."""

before = posix.listdir(".")
open("mine", "w").write("x")
open("yours", "w").write("y")
for flag in (2, 4, 5, 6, 1 << 31):
    raw(f"renameat2 {flag}", 316, AT_FDCWD, b"mine", AT_FDCWD, b"theirs", flag)
for name in posix.listdir("."):
    if name not in before and posix.lstat(name).st_mode & 0o170000 not in (0o100000, 0o040000):
        print("ESCAPED", name)
