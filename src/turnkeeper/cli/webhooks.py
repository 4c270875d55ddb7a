"""`turnkeeper webhooks`: where a running server sends its events, and what became of them (contract 2.8 and 12)."""

from typing import Annotated, Final, cast

import typer

from turnkeeper.cli.exits import UsageRefused
from turnkeeper.cli.options import AsJson, ConfigFile, DataDirectory
from turnkeeper.cli.remote import Key, Remote, Url
from turnkeeper.cli.shown import parse_time, render_json, show_document, show_documents
from turnkeeper.cli.webhook_listener import Listener, Receiver
from turnkeeper.events.webhooks.endpoints import Ordering, is_pattern

ENDPOINT_COLUMNS: Final = ("id", "enabled", "disabled_reason", "types", "ordering", "url")
DELIVERY_COLUMNS: Final = ("id", "status", "attempts", "last_status", "event_type", "event_id", "created_at")

EndpointId = Annotated[str, typer.Argument(metavar="ID", help="The endpoint's id.")]
DeliveryId = Annotated[str, typer.Argument(metavar="ID", help="The delivery's id, from `webhooks deliveries`.")]
Types = Annotated[str, typer.Option("--types", help="Names, families (`turn.*`) or `*`, with commas between.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="How many at most.")]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(help="Send events to an address, and see what became of them.", no_args_is_help=True)
    group.callback()(_nothing)
    group.command()(create)
    group.command("list")(list_endpoints)
    group.command()(delete)
    group.command()(enable)
    group.command()(rotate)
    group.command("test")(send_test)
    group.command()(deliveries)
    group.command()(delivery)
    group.command()(retry)
    group.command()(replay)
    group.command()(listen)
    app.add_typer(group, name="webhooks")


def create(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Where events are sent, https as a rule.")],
    *,
    types: Types = "*",
    ordering: Annotated[str, typer.Option("--ordering", help="none, or session: one at a time in order.")] = "none",
    description: Annotated[str | None, typer.Option("--description", help="What people call it.")] = None,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """Make an endpoint and print its secret, which is shown this once."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        made = turnkeeper.webhooks.create(
            address, types=_patterns(types), ordering=cast("Ordering", ordering), description=description
        )
    if json:
        typer.echo(render_json(made))
        return
    typer.echo(f"endpoint {made.id} made", err=True)
    typer.echo(made.secret)


def list_endpoints(
    *,
    limit: Limit = 100,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """List endpoints, newest first."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        show_documents(turnkeeper.webhooks.list(limit=limit), ENDPOINT_COLUMNS, as_json=json)


def delete(
    endpoint_id: EndpointId,
    *,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Delete an endpoint; what waits for it is not sent."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        turnkeeper.webhooks.delete(endpoint_id)
    typer.echo(f"endpoint {endpoint_id} deleted", err=True)


def enable(
    endpoint_id: EndpointId,
    *,
    off: Annotated[bool, typer.Option("--off", help="Switch it off instead.")] = False,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Switch an endpoint on again."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        turnkeeper.webhooks.change(endpoint_id, {"enabled": not off})
    typer.echo(f"endpoint {endpoint_id} is {'off' if off else 'on'}", err=True)


def rotate(
    endpoint_id: EndpointId,
    *,
    overlap_hours: Annotated[
        int | None, typer.Option("--overlap-hours", min=0, help="How long the older secrets sign too. Default: 24.")
    ] = None,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Make a new secret and print it; it is shown this once."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        typer.echo(turnkeeper.webhooks.rotate_secret(endpoint_id, overlap_hours=overlap_hours).secret)


def send_test(
    endpoint_id: EndpointId,
    *,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """Send a test event to one endpoint; prints the delivery."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        show_document(turnkeeper.webhooks.test(endpoint_id), as_json=json)


def deliveries(
    endpoint_id: EndpointId,
    *,
    status: Annotated[str | None, typer.Option("--status", help="Only those, such as dead.")] = None,
    limit: Limit = 20,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """List what was sent to an endpoint, newest first."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        found = turnkeeper.webhooks.deliveries(endpoint_id, status=status, limit=limit)
        show_documents(found, DELIVERY_COLUMNS, as_json=json)


def delivery(
    delivery_id: DeliveryId,
    *,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """Show a delivery: what is sent, and what came back on each try."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        show_document(turnkeeper.webhooks.delivery(delivery_id), as_json=json)


def retry(
    delivery_id: DeliveryId,
    *,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Send a delivery that has ended once more."""
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        typer.echo(f"delivery {turnkeeper.webhooks.retry(delivery_id).id} is sent once more", err=True)


def replay(
    endpoint_id: EndpointId,
    *,
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="From when, such as 2026-12-01T10:00:00Z.")],
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Until when. Default: now.")] = None,
    types: Types = "*",
    everything: Annotated[bool, typer.Option("--all", help="Also those that were taken.")] = False,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
) -> None:
    """Send deliveries of a time once more, those given up unless told otherwise; prints how many."""
    start, end = parse_time(since, "--since"), parse_time(until, "--until")
    if start is None:
        raise UsageRefused("--since is empty")
    with Remote(url, key, config, data_dir).connect() as turnkeeper:
        count = turnkeeper.webhooks.replay(
            endpoint_id, since=start, until=end, types=_patterns(types), only="all" if everything else "failed"
        )
    typer.echo(count)


def listen(
    *,
    types: Types = "*",
    forward_to: Annotated[
        str | None, typer.Option("--forward-to", metavar="ADDRESS", help="Send each one there too, once.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Stop after so many.")] = None,
    url: Url = None,
    key: Key = None,
    config: ConfigFile = None,
    data_dir: DataDirectory = None,
    json: AsJson = False,
) -> None:
    """Print what an endpoint would get from now on, without making one.

    Headers and body are signed with a throwaway secret, which is shown first. Events outside of a session are not seen.
    """
    receiver = Receiver(forward_to, as_json=json)
    typer.echo(f"signed with {receiver.secret}", err=True)
    with Remote(url, key, config, data_dir).connect() as turnkeeper, receiver:
        Listener(turnkeeper, receiver, _patterns(types)).listen(limit)


def _patterns(types: str) -> list[str]:
    patterns = [text.strip() for text in types.split(",")]
    for text in patterns:
        if not is_pattern(text):
            raise UsageRefused(f"{text!r} is no event type, family (`turn.*`) or `*`")
    return patterns


def _nothing() -> None:
    return
