"""Take all the entries of a file system with empty files."""

count = 0
try:
    while count < 200_000:
        posix.close(posix.open(f"n{count}", posix.O_CREAT | posix.O_WRONLY))
        count += 1
except OSError as error:
    print("refused", count, error)
if count > 100_000:
    print("ESCAPED", count, "files")
