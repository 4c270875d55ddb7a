"""Webhook endpoints and deliveries of a server (contract 2.8 and 12).

Made from `turnkeeper.client.turn_api.webhooks` by `tests/unit/client/turn_api_half.py`; change it there.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from turnkeeper.client.turn_api.bodies import given, making, narrowed, path_of, time_text
from turnkeeper.client.turn_api.connection_blocking import Connection
from turnkeeper.client.turn_api.pages_blocking import listed
from turnkeeper.client.turn_api.retries import Call
from turnkeeper.client.turn_api.views import WebhookDelivery, WebhookEndpoint, WebhookSecret


class Webhooks:
    """Addresses that events are sent to."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(
        self,
        url: str,
        *,
        idempotency_key: str | None = None,
        types: Sequence[str] | None = None,
        agent_ids: Sequence[str] | None = None,
        ordering: Literal["none", "session"] | None = None,
        description: str | None = None,
        enabled: bool | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> WebhookEndpoint:
        """Makes an endpoint, once; its `secret` is in this answer and never again. `types`: names, `turn.*`, or `*`.

        The secret is None where that answer was lost and the repeat was told of the endpoint: rotate it then.
        """
        body = given(
            extra,
            url=url,
            types=types,
            agent_ids=agent_ids,
            ordering=ordering,
            description=description,
            enabled=enabled,
        )
        return WebhookEndpoint((self._connection.ask(making(_path(), body, idempotency_key))).members)

    def get(self, endpoint_id: str) -> WebhookEndpoint:
        """The endpoint, without its secret. Raises `NotFound`."""
        call = Call("GET", _path(endpoint_id), repeatable=True)
        return WebhookEndpoint((self._connection.ask(call)).members)

    def list(self, *, limit: int | None = None, order: Literal["asc", "desc"] = "desc") -> Iterator[WebhookEndpoint]:
        """Endpoints, newest first unless `order` says otherwise."""
        call = Call("GET", _path(), query={"order": order}, repeatable=True)
        for members in listed(self._connection, call, limit=limit):
            yield WebhookEndpoint(members)

    def change(self, endpoint_id: str, changes: Mapping[str, Any]) -> WebhookEndpoint:
        """Changes members of an endpoint; `{"enabled": True}` switches it on again."""
        call = Call("PATCH", _path(endpoint_id), changes, repeatable=True)
        return WebhookEndpoint((self._connection.ask(call)).members)

    def delete(self, endpoint_id: str) -> None:
        """Deletes an endpoint; what waited for it is not sent."""
        self._connection.ask(Call("DELETE", _path(endpoint_id)))

    def rotate_secret(self, endpoint_id: str, *, overlap_hours: int | None = None) -> WebhookSecret:
        """A new secret, shown once; the older ones sign beside it until the overlap is over."""
        call = Call("POST", _path(endpoint_id, "rotate_secret"), given(overlap_hours=overlap_hours))
        return WebhookSecret((self._connection.ask(call)).members)

    def test(self, endpoint_id: str) -> WebhookDelivery:
        """Sends a `webhook_endpoint.test` event to this endpoint alone."""
        answer = self._connection.ask(Call("POST", _path(endpoint_id, "test")))
        return WebhookDelivery(answer.members)

    def deliveries(
        self,
        endpoint_id: str,
        *,
        status: str | None = None,
        limit: int | None = None,
        order: Literal["asc", "desc"] = "desc",
    ) -> Iterator[WebhookDelivery]:
        """What was sent to an endpoint, newest first unless `order` says otherwise."""
        query = narrowed(order=order, status=status)
        call = Call("GET", _path(endpoint_id, "deliveries"), query=query, repeatable=True)
        for members in listed(self._connection, call, limit=limit):
            yield WebhookDelivery(members)

    def delivery(self, delivery_id: str) -> WebhookDelivery:
        """One delivery with what is sent and what came back on each try."""
        call = Call("GET", path_of("webhook_deliveries", delivery_id), repeatable=True)
        return WebhookDelivery((self._connection.ask(call)).members)

    def retry(self, delivery_id: str) -> WebhookDelivery:
        """Sends a delivery that has ended once more. Raises `Conflict` (`delivery_pending`)."""
        answer = self._connection.ask(Call("POST", path_of("webhook_deliveries", delivery_id, "retry")))
        return WebhookDelivery(answer.members)

    def replay(
        self,
        endpoint_id: str,
        *,
        since: datetime,
        until: datetime | None = None,
        types: Sequence[str] | None = None,
        only: Literal["failed", "all"] | None = None,
    ) -> int:
        """Sends deliveries of a time once more, those given up unless `only` is all. How many they are."""
        shown = None if until is None else time_text(until, "until")
        body = given(since=time_text(since, "since"), until=shown, types=types, only=only)
        answer = self._connection.ask(Call("POST", _path(endpoint_id, "replay"), body))
        count = answer.members.get("count")
        return count if isinstance(count, int) else 0


def _path(*parts: str) -> str:
    return path_of("webhook_endpoints", *parts)
