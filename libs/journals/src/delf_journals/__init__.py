"""What a journal can do beyond what a task needs of it."""
