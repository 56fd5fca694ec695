"""People and their keys. All functions block; call them in threads."""

from __future__ import annotations

from delf.protocols.people import Person, person_of, person_text
from delf_journal_sql.database import Connection


def find(connection: Connection) -> list[Person]:
    """Return all people in the order of their names."""
    rows = connection.execute("SELECT data FROM delf_people ORDER BY name")
    return [person_of(data) for (data,) in rows]


def keep(connection: Connection, person: Person, instead_of: Person | None) -> bool:
    """Store a person.

    Args:
        connection: A connection in a write transaction.
        person: The new or changed person.
        instead_of: The stored person that is replaced; None for a new person.

    Returns:
        False if the stored person was changed concurrently; nothing is stored then.
    """
    values = {"name": person.name, "data": person_text(person)}
    if instead_of is None:
        rows = connection.execute(
            "INSERT INTO delf_people (name, data) VALUES (:name, :data) "
            "ON CONFLICT DO NOTHING RETURNING name",
            values,
        )
    else:
        rows = connection.execute(
            "UPDATE delf_people SET data = :data WHERE name = :name AND data = :before "
            "RETURNING name",
            {**values, "before": person_text(instead_of)},
        )
    return bool(rows)
