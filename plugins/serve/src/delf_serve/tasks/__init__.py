"""Tasks of the server: submitted, run, shown and changed through the journal.

``tasks.py`` has the class that creates the other parts. Each part has one file:

- ``submissions``: new tasks, each started once for an idempotency key.
- ``repeats``: new tasks made from earlier ones, by repeating or forking.
- ``running``: the tasks that run in this process, and the limit of open tasks for each user.
- ``resuming``: continuing recorded tasks in this process.
- ``adoption``: resuming the tasks of dead servers.
- ``control``: cancelling, resuming and deleting tasks, as people ask for.
- ``views``, ``details``: tasks as the API shows them to a caller.
- ``pending_requests``: the requests for which tasks wait, and who may decide them.
- ``waits``: clients that wait for the end of a task.
- ``retention``: removing tasks beyond their retention time.
- ``request_data``, ``conversation_names``: what the journal stores about a request, and the names
  of conversations.
"""
