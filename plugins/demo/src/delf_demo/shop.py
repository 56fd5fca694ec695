"""The database of a small tea shop, reproducible."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from delf.machine.own_files import make_private_file

FIRST_DAY: Final = date(2026, 1, 1)
LAST_DAY: Final = date(2026, 6, 30)
_CUSTOMER_COUNT: Final = 48
_ORDER_COUNT: Final = 260

_SCHEMA: Final = """
CREATE TABLE customers (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL, joined_on TEXT NOT NULL
);
CREATE TABLE categories (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE products (
    id INTEGER PRIMARY KEY,
    category_id INTEGER NOT NULL REFERENCES categories (id),
    name TEXT NOT NULL,
    price_cents INTEGER NOT NULL,
    stock INTEGER NOT NULL
);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    customer_id INTEGER NOT NULL REFERENCES customers (id),
    ordered_on TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('open', 'shipped', 'cancelled'))
);
CREATE TABLE order_items (
    order_id INTEGER NOT NULL REFERENCES orders (id),
    product_id INTEGER NOT NULL REFERENCES products (id),
    quantity INTEGER NOT NULL,
    price_cents INTEGER NOT NULL,
    PRIMARY KEY (order_id, product_id)
);
CREATE TABLE purchase_orders (
    id INTEGER PRIMARY KEY,
    product_id INTEGER NOT NULL REFERENCES products (id),
    quantity INTEGER NOT NULL,
    ordered_on TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'placed'
);
"""

# By category: name, price in cents, stock, and popularity (the weight in random orders).
_PRODUCTS: Final = {
    "Black tea": (
        ("Assam Mangalam", 890, 64, 8),
        ("Darjeeling First Flush", 1650, 8, 9),
        ("Earl Grey Blue", 790, 120, 7),
        ("Lapsang Souchong", 980, 41, 2),
    ),
    "Green tea": (
        ("Gyokuro Asahi", 2890, 12, 4),
        ("Jasmine Pearls", 1490, 7, 8),
        ("Sencha Kagoshima", 1190, 82, 6),
        ("Genmaicha", 840, 77, 4),
    ),
    "Herbal": (
        ("Chamomile Blossom", 590, 98, 4),
        ("Peppermint Leaf", 490, 140, 5),
        ("Rooibos Vanilla", 640, 9, 9),
        ("Lemon Verbena", 720, 56, 2),
    ),
    "Teaware": (
        ("Cast-iron Teapot", 4900, 12, 3),
        ("Glass Teapot", 3450, 23, 3),
        ("Porcelain Cup, set of 4", 2790, 31, 2),
        ("Tea Filter", 690, 160, 5),
    ),
    "Sweets": (
        ("Candied Ginger", 540, 70, 3),
        ("Ceylon Cinnamon Biscuits", 460, 88, 5),
        ("Matcha Chocolate", 650, 20, 7),
        ("Rock Sugar", 380, 110, 3),
    ),
}
_FIRST_NAMES: Final = (
    "Ada", "Boris", "Carla", "Deniz", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kofi",
    "Lena", "Mira", "Nils", "Olga", "Pablo",
)  # fmt: skip
_LAST_NAMES: Final = ("Berg", "Costa", "Demir", "Eriksen", "Fontaine", "Garcia", "Haas", "Ito")
_CITIES: Final = ("Berlin", "Bremen", "Graz", "Hamburg", "Köln", "Leipzig", "Wien", "Zürich")


def make_shop(path: Path) -> tuple[int, int]:
    """Create the database file with the same data each time.

    Returns:
        The number of tables, and the number of rows in all tables.
    """
    # A fixed seed, so that the data is the same each time.
    dice = random.Random(2026)  # noqa: S311
    make_private_file(path)
    with closing(sqlite3.connect(path)) as database:
        database.executescript(_SCHEMA)
        _add_customers(database, dice)
        popularity = _add_products(database)
        _add_orders(database, dice, popularity)
        database.executemany(
            "INSERT INTO purchase_orders (product_id, quantity, ordered_on, status) "
            "VALUES (?, ?, ?, 'delivered')",
            [(3, 120, "2026-03-02"), (10, 150, "2026-04-13"), (16, 160, "2026-05-04")],
        )
        database.commit()
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master")]
        tables = [name for name in tables if not name.startswith("sqlite_")]
        counts = [database.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] for name in tables]  # noqa: S608
    return len(tables), sum(counts)


def _add_customers(database: sqlite3.Connection, dice: random.Random) -> None:
    names = [f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES]
    rows = [
        (name, dice.choice(_CITIES), _day(dice, date(2024, 1, 1), FIRST_DAY))
        for name in dice.sample(names, _CUSTOMER_COUNT)
    ]
    database.executemany("INSERT INTO customers (name, city, joined_on) VALUES (?, ?, ?)", rows)


def _add_products(database: sqlite3.Connection) -> dict[int, int]:
    """Add categories and products; return a mapping from product id to popularity."""
    popularity: dict[int, int] = {}
    for number, (category, products) in enumerate(_PRODUCTS.items(), 1):
        database.execute("INSERT INTO categories VALUES (?, ?)", (number, category))
        for name, price, stock, weight in products:
            cursor = database.execute(
                "INSERT INTO products (category_id, name, price_cents, stock) VALUES (?, ?, ?, ?)",
                (number, name, price, stock),
            )
            popularity[cursor.lastrowid or 0] = weight
    return popularity


def _add_orders(
    database: sqlite3.Connection, dice: random.Random, popularity: dict[int, int]
) -> None:
    prices = dict(database.execute("SELECT id, price_cents FROM products"))
    days: list[str] = []
    for number in range(_ORDER_COUNT - 1):
        day = _day(dice, FIRST_DAY, LAST_DAY)
        if number % 2 == 1:  # take the later one of two days, so that business grows
            day = max(day, _day(dice, FIRST_DAY, LAST_DAY))
        days.append(day)
    days.append(LAST_DAY.isoformat())  # the shop has an order on the last day
    for number, day in enumerate(sorted(days), 1):
        statuses = ("shipped",) * 15 + ("cancelled",)  # one order in 16 was cancelled
        if day > "2026-06-24":  # half of the orders of the last days are still open
            statuses = ("open", "shipped")
        database.execute(
            "INSERT INTO orders VALUES (?, ?, ?, ?)",
            (number, dice.randint(1, _CUSTOMER_COUNT), day, dice.choice(statuses)),
        )
        products = dice.choices(list(popularity), list(popularity.values()), k=dice.randint(1, 4))
        items = [
            (number, product, dice.randint(1, 3), prices[product])
            for product in dict.fromkeys(products)
        ]
        database.executemany("INSERT INTO order_items VALUES (?, ?, ?, ?)", items)


def _day(dice: random.Random, first: date, last: date) -> str:
    return (first + timedelta(days=dice.randint(0, (last - first).days))).isoformat()
