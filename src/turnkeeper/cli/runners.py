"""`turnkeeper runners`: what runners elsewhere show at the door."""

import typer

from turnkeeper.runners.tokens import new_pool_token, token_sha256


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(help="Sandboxes that others run.", no_args_is_help=True)
    group.callback()(_nothing)
    group.command("token")(token)
    app.add_typer(group, name="runners")


def token() -> None:
    """Make a token for the runners of a pool and print it.

    It is shown this once. Its SHA-256, on standard error, goes into `runners.pools.NAME.token_sha256`.
    """
    made = new_pool_token()
    typer.echo(made)
    typer.echo(f"token_sha256 = {token_sha256(made)}", err=True)


def _nothing() -> None:
    return
