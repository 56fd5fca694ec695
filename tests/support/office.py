"""The tools of a small office, for scripts as models write them, and what was called."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, TypedDict

from pydantic import BaseModel

from delf import Connection, action, tool
from delf.errors import ToolException

CHANGES: list[str] = []
"""Every call that changed something, with its arguments."""


def _changed(name: str, **given: Any) -> None:
    CHANGES.append(f"{name} {json.dumps(given, default=str)}")


class Order(TypedDict):
    id: int
    customer_id: int
    product: str
    pieces: int
    total: float
    status: str
    placed: dt.date


def _order(number: int, customer: int, product: str, pieces: int, total: float, day: int) -> Order:
    status = "open" if number % 2 else "paid"
    placed = dt.date(2026, 11, day)
    return Order(
        id=number,
        customer_id=customer,
        product=product,
        pieces=pieces,
        total=total,
        status=status,
        placed=placed,
    )


ORDERS = [
    _order(1, 1, "lamp", 2, 58.0, 2),
    _order(2, 2, "desk", 1, 120.0, 5),
    _order(3, 1, "desk", 2, 240.0, 9),
    _order(4, 3, "chair", 4, 180.5, 10),
    _order(5, 2, "lamp", 10, 290.0, 12),
]


@dataclass
class Customer:
    id: int
    name: str
    email: str
    city: str


CUSTOMERS = {
    1: Customer(1, "Ada", "ada@example.com", "London"),
    2: Customer(2, "Bob", "bob@example.com", "Madrid"),
    3: Customer(3, "Cleo", "cleo@example.com", "Berlin"),
}
STOCK = {"lamp": 4, "desk": 0, "chair": 12}


class Event(BaseModel):
    title: str
    start: dt.datetime
    minutes: int = 60
    attendees: list[str] = []
    kind: Literal["meeting", "call"] = "meeting"


class Shop(Connection):
    """The shop's orders and customers."""

    @action(effect="read")
    async def find_orders(
        self,
        status: Literal["open", "paid"] | None = None,
        customer_id: int | None = None,
        limit: int = 50,
    ) -> list[Order]:
        """Orders, oldest first."""
        return [
            order
            for order in ORDERS
            if status in (None, order["status"]) and customer_id in (None, order["customer_id"])
        ][:limit]

    @action(effect="read")
    async def get_customer(self, customer_id: int) -> Customer:
        """One customer."""
        if customer_id not in CUSTOMERS:
            raise ToolException(f"no customer {customer_id}")
        return CUSTOMERS[customer_id]

    @action(effect="read")
    async def price(self, product: str) -> Decimal:
        """The price of a product."""
        return {"lamp": Decimal("29.00"), "desk": Decimal("120.00")}.get(product, Decimal("45.10"))

    @action(effect="write")
    async def set_stock(self, product: str, pieces: int) -> str:
        """Set how many pieces are in stock."""
        _changed("set_stock", product=product, pieces=pieces)
        return f"{product}: {pieces}"

    @action(effect="irreversible")
    async def refund(self, order_id: int, amount: float, reason: str = "") -> dict[str, Any]:
        """Refund an order."""
        if order_id > 5:
            raise ToolException(f"no order {order_id}")
        _changed("refund", order_id=order_id, amount=amount)
        return {"order_id": order_id, "refunded": amount}


class Mails(Connection):
    """Mail."""

    @action(effect="read")
    async def search(self, query: str = "", unread_only: bool = False) -> list[dict[str, Any]]:
        """Mails, oldest first."""
        found: list[dict[str, Any]] = [
            {"id": "m1", "sender": "ada@example.com", "subject": "Lamp", "unread": True},
            {"id": "m2", "sender": "bob@example.com", "subject": "Invoice", "unread": True},
            {"id": "m3", "sender": "news@example.org", "subject": "News", "unread": False},
        ]
        for day, mail in enumerate(found, 20):
            mail["received"] = dt.datetime(2026, 11, day, 9, 30)
        return [
            mail
            for mail in found
            if query.lower() in mail["subject"].lower() and (mail["unread"] or not unread_only)
        ]

    @action(effect="irreversible")
    async def send(self, to: list[str], subject: str, body: str) -> str:
        """Send a mail."""
        _changed("send", to=to, subject=subject)
        return "sent"


class Days(Connection):
    """The calendar."""

    @action(effect="read")
    async def events(self, start: dt.date, end: dt.date) -> list[dict[str, Any]]:
        """Events of the days from start to end."""
        found = [{"title": "Standup", "start": "2026-11-26T09:00:00+00:00"}]
        return [event for event in found if str(start) <= event["start"][:10] <= str(end)]

    @action(effect="write")
    async def create(self, event: Event) -> dict[str, Any]:
        """Create an event."""
        _changed("create", **event.model_dump(mode="json"))
        return {"id": "e9", "title": event.title}


@tool(effect="read", confirm=False)
async def weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> dict[str, Any]:
    """The weather now."""
    found = {"London": 9.5, "Madrid": 17.0, "Berlin": 4.0}.get(city)
    if found is None:
        raise ToolException(f"unknown city {city!r}")
    return {"temperature": found if unit == "celsius" else found * 9 / 5 + 32, "sky": "clear"}


@tool(effect="read", confirm=False)
async def stock_level(product: str) -> int:
    """Pieces in the warehouse."""
    return STOCK.get(product, 0)


@tool(effect="read", confirm=False)
async def exchange_rate(base: str, target: str) -> float:
    """Units of target for one of base."""
    return {("EUR", "USD"): 1.1, ("USD", "EUR"): 0.9}[(base, target)]


@tool(effect="read", confirm=False)
async def find_user(name: str) -> str | None:
    """The id of a user, or None."""
    return {"ada": "u1", "bob": "u2"}.get(name.lower())


@tool(effect="write", confirm=False)
async def save_note(title: str, text: str, tags: list[str] | None = None) -> dict[str, Any]:
    """Save a note."""
    _changed("save_note", title=title, text=text, tags=tags)
    return {"id": 1, "title": title}


def tools(trust: Any = None) -> list[Any]:
    """All of them; none asks. The connections may say whose words they return."""
    return [
        Shop(name="shop", confirm=False, trust=trust),
        Mails(name="mail", confirm=False, trust=trust),
        Days(name="calendar", confirm=False, trust=trust),
        weather,
        stock_level,
        exchange_rate,
        find_user,
        save_note,
    ]
