"""What the site has beside ``docs/``: pages made from the code, and files linked to."""
