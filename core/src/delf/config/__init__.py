"""Configuration: flags over ``--set`` over ``DELF_*`` over ``.env`` over ``delf.toml``."""
