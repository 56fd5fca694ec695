"""The settings: the addresses that a script may reach, limits, and the rate of requests."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from delf.settings import PluginSettings


class WebSettings(PluginSettings):
    """The settings of ``Web``: allowed hosts, limits, and the request rate."""

    hosts: tuple[str, ...] = Field(
        default=(), description='Patterns of hosts: "example.com", "*.example.com".'
    )
    others: Literal["allow", "ask", "refuse"] | None = Field(
        default=None,
        description=(
            "The treatment of other hosts: `refuse`, `allow`, or `ask` for approval of "
            "each call. By default refuse if `hosts` is set, else allow."
        ),
    )
    private: tuple[str, ...] = Field(
        default=(),
        description=(
            "Hosts and networks of private networks that scripts may reach: names, or 10.1.0.0/16."
        ),
    )
    ports: tuple[int, ...] = Field(
        default=(80, 443, 8000, 8080, 8443), description="Ports that may be reached; all if empty."
    )
    user_agent: str = Field(
        default="delf", pattern=r"^[ -~]+$", description="The User-Agent of requests."
    )
    rate: float = Field(
        default=5.0, ge=0, description="Requests a second to one host at most; 0 is no limit."
    )
    timeout: float = Field(default=30.0, gt=0, description="Seconds for one request.")
    read_timeout: float = Field(
        default=15.0, gt=0, description="Seconds to parse a downloaded page."
    )
    max_bytes: int = Field(
        default=5_000_000, ge=1, description="The most bytes of a page, after decompression."
    )

    @property
    def other_hosts(self) -> Literal["allow", "ask", "refuse"]:
        """The treatment of hosts that match no pattern of ``hosts``."""
        return self.others or ("refuse" if self.hosts else "allow")
