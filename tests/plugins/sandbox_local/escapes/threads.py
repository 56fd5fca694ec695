"""More threads than a script can need, each with memory of the kernel."""

thread = real_import("_thread")
thread.stack_size(32768)
lock = thread.allocate_lock()
lock.acquire()
count = 0
try:
    while count < 2000:
        thread.start_new_thread(lock.acquire, ())
        count += 1
except (RuntimeError, MemoryError) as error:
    print("refused", count, error)
if count > 200:
    print("ESCAPED", count, "threads")
