"""Calls that are newer than the filter."""

for number in range(440, 560):
    if number in (441, 449):  # epoll_pwait2, futex_waitv: waiting only
        continue
    result = syscall(number, 0, 0, 0, 0, 0, 0)
    if result not in (-1, -38):
        print("ESCAPED the kernel looked at", number, result)
