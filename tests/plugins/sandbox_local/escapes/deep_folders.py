"""A tree too deep for what removes it."""

for _ in range(3000):
    posix.mkdir("d")
    posix.chdir("d")
print("made")
