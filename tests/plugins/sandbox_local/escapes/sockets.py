"""Make a socket of any family."""

for family in range(0, 45):
    for kind in (1, 2, 3, 5):
        if syscall(41, family, kind, 0) >= 0:
            print("ESCAPED socket", family, kind)
