"""The tools of the data set: a small office. Evaluations give them recorded results."""

from delf import tool


@tool(effect="read")
def find_customer(name: str) -> dict | None:
    """Find a customer: id, name, mail; None if there is none."""
    raise NotImplementedError


@tool(effect="read")
def orders_of(customer_id: int) -> list[dict]:
    """List the orders of a customer: number, euros, paid."""
    raise NotImplementedError


@tool(effect="read")
def unread_mails() -> list[dict]:
    """List the unread mails: sender, subject, text."""
    raise NotImplementedError


@tool(effect="irreversible")
def send_mail(to: str, subject: str, text: str) -> str:
    """Send a mail."""
    raise NotImplementedError


@tool(effect="write")
def cancel_order(number: int) -> str:
    """Cancel an order."""
    raise NotImplementedError
