"""Take over another process of the same user."""

for pid in (HOST, TEMPLATE):
    raw("attach", 101, 16, pid, 0, 0)
    raw("seize", 101, 0x4206, pid, 0, 0)
raw("traceme", 101, 0, 0, 0, 0)
