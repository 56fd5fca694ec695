"""Read or leave keys in the keyring of the user."""

raw("add_key", 248, b"user", b"pwned", b"x", 1, -4)
raw("request_key", 249, b"user", b"pwned", None, 0)
for keyring in (-1, -2, -3, -4, -5):
    raw(f"keyctl {keyring}", 250, 0, keyring, 0)
