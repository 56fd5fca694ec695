"""What people see of a task: folds over its events."""
