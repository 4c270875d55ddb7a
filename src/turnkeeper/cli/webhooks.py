"""`turnkeeper webhooks`: where a running server sends its events, and what became of them (contract 2.8 and 12)."""

from typing import Annotated, Final, cast

import typer

from turnkeeper.cli.exits import UsageRefused
from turnkeeper.cli.options import AsJson
from turnkeeper.cli.over_api import Limit, add_group, over_api
from turnkeeper.cli.shown import parse_time, render_json, show_document, show_documents
from turnkeeper.cli.webhook_listener import Place, Receiver
from turnkeeper.cli.webhook_listener import listen as listen_at
from turnkeeper.client import Turnkeeper
from turnkeeper.events.webhooks.endpoints import Ordering, is_pattern

ENDPOINT_COLUMNS: Final = ("id", "enabled", "disabled_reason", "types", "ordering", "url")
DELIVERY_COLUMNS: Final = ("id", "status", "attempts", "last_status", "event_type", "event_id", "created_at")

EndpointId = Annotated[str, typer.Argument(metavar="ID", help="The endpoint's id.")]
DeliveryId = Annotated[str, typer.Argument(metavar="ID", help="The delivery's id, from `webhooks deliveries`.")]
Types = Annotated[str, typer.Option("--types", help="Names, families (`turn.*`) or `*`, with commas between.")]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    commands = {
        "create": create,
        "list": list_endpoints,
        "delete": delete,
        "enable": enable,
        "rotate": rotate,
        "test": send_test,
        "deliveries": deliveries,
        "delivery": delivery,
        "retry": retry,
        "replay": replay,
        "listen": listen,
    }
    add_group(app, "webhooks", about="Send events to an address, and see what became of them.", commands=commands)


@over_api
def create(
    turnkeeper: Turnkeeper,
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Where events are sent, https as a rule.")],
    *,
    types: Types = "*",
    ordering: Annotated[str, typer.Option("--ordering", help="none, or session: one at a time in order.")] = "none",
    description: Annotated[str | None, typer.Option("--description", help="What people call it.")] = None,
    json: AsJson = False,
) -> None:
    """Make an endpoint and print its secret, which is shown this once."""
    made = turnkeeper.webhooks.create(
        address, types=_patterns(types), ordering=cast("Ordering", ordering), description=description
    )
    if json:
        typer.echo(render_json(made))
        return
    typer.echo(f"endpoint {made.id} made", err=True)
    typer.echo(made.secret)


@over_api
def list_endpoints(
    turnkeeper: Turnkeeper,
    *,
    limit: Limit = 100,
    json: AsJson = False,
) -> None:
    """List endpoints, newest first."""
    show_documents(turnkeeper.webhooks.list(limit=limit), ENDPOINT_COLUMNS, as_json=json)


@over_api
def delete(
    turnkeeper: Turnkeeper,
    endpoint_id: EndpointId,
) -> None:
    """Delete an endpoint; what waits for it is not sent."""
    turnkeeper.webhooks.delete(endpoint_id)
    typer.echo(f"endpoint {endpoint_id} deleted", err=True)


@over_api
def enable(
    turnkeeper: Turnkeeper,
    endpoint_id: EndpointId,
    *,
    off: Annotated[bool, typer.Option("--off", help="Switch it off instead.")] = False,
) -> None:
    """Switch an endpoint on again."""
    turnkeeper.webhooks.change(endpoint_id, {"enabled": not off})
    typer.echo(f"endpoint {endpoint_id} is {'off' if off else 'on'}", err=True)


@over_api
def rotate(
    turnkeeper: Turnkeeper,
    endpoint_id: EndpointId,
    *,
    overlap_hours: Annotated[
        int | None, typer.Option("--overlap-hours", min=0, help="How long the older secrets sign too. Default: 24.")
    ] = None,
) -> None:
    """Make a new secret and print it; it is shown this once."""
    typer.echo(turnkeeper.webhooks.rotate_secret(endpoint_id, overlap_hours=overlap_hours).secret)


@over_api
def send_test(
    turnkeeper: Turnkeeper,
    endpoint_id: EndpointId,
    *,
    json: AsJson = False,
) -> None:
    """Send a test event to one endpoint; prints the delivery."""
    show_document(turnkeeper.webhooks.test(endpoint_id), as_json=json)


@over_api
def deliveries(
    turnkeeper: Turnkeeper,
    endpoint_id: EndpointId,
    *,
    status: Annotated[str | None, typer.Option("--status", help="Only those, such as dead.")] = None,
    limit: Limit = 20,
    json: AsJson = False,
) -> None:
    """List what was sent to an endpoint, newest first."""
    found = turnkeeper.webhooks.deliveries(endpoint_id, status=status, limit=limit)
    show_documents(found, DELIVERY_COLUMNS, as_json=json)


@over_api
def delivery(
    turnkeeper: Turnkeeper,
    delivery_id: DeliveryId,
    *,
    json: AsJson = False,
) -> None:
    """Show a delivery: what is sent, and what came back on each try."""
    show_document(turnkeeper.webhooks.delivery(delivery_id), as_json=json)


@over_api
def retry(
    turnkeeper: Turnkeeper,
    delivery_id: DeliveryId,
) -> None:
    """Send a delivery that has ended once more."""
    typer.echo(f"delivery {turnkeeper.webhooks.retry(delivery_id).id} is sent once more", err=True)


@over_api
def replay(
    turnkeeper: Turnkeeper,
    endpoint_id: EndpointId,
    *,
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="From when, such as 2026-12-01T10:00:00Z.")],
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Until when. Default: now.")] = None,
    types: Types = "*",
    everything: Annotated[bool, typer.Option("--all", help="Also those that were taken.")] = False,
) -> None:
    """Send deliveries of a time once more, those given up unless told otherwise; prints how many."""
    start, end = parse_time(since, "--since"), parse_time(until, "--until")
    if start is None:
        raise UsageRefused("--since is empty")
    count = turnkeeper.webhooks.replay(
        endpoint_id, since=start, until=end, types=_patterns(types), only="all" if everything else "failed"
    )
    typer.echo(count)


@over_api
def listen(
    turnkeeper: Turnkeeper,
    *,
    types: Types = "*",
    forward_to: Annotated[
        str | None,
        typer.Option("--forward-to", metavar="ADDRESS", help="Pass each request on to there, and its answer back."),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Where requests arrive; 0: a free one.")] = 0,
    address: Annotated[
        str | None, typer.Option("--address", metavar="URL", help="What the server is told instead, such as a tunnel.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Stop after so many.")] = None,
    json: AsJson = False,
) -> None:
    """Print what an endpoint gets: one is made for as long as the command runs, on this machine.

    Headers and body are as they came, signed with the endpoint's secret, which is shown first.
    """
    receiver = Receiver(forward_to, limit=limit, as_json=json)
    listen_at(turnkeeper, receiver, _patterns(types), Place(port, address))


def _patterns(types: str) -> list[str]:
    patterns = [text.strip() for text in types.split(",")]
    for text in patterns:
        if not is_pattern(text):
            raise UsageRefused(f"{text!r} is no event type, family (`turn.*`) or `*`")
    return patterns
