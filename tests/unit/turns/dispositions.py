"""What a scripted Guardian says to a step, as tests put it."""

from turnkeeper.acs import Decision, Disposition


def modify(**modifications: object) -> Decision:
    """A MODIFY."""
    return Decision(Disposition.MODIFY, "as changed", ("changed",), modifications=modifications)


def redact(*paths: str) -> Decision:
    """A MODIFY that redacts places."""
    return modify(redactions=[{"path": path} for path in paths])
