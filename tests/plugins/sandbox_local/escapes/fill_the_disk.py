"""Many files, each within the limit of one."""

piece = bytes(1 << 20)
total = 0
try:
    for number in range(100):
        with open(f"f{number}", "wb", buffering=0) as file:
            for _ in range(40):
                total += file.write(piece)
except OSError as error:
    print("refused", total, error)
if total > 300 << 20:
    print("ESCAPED", total, "bytes on the disk of the host")
