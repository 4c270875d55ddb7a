"""From a request body to an operator's word (contract 2.12)."""

from turnkeeper.api.bodies import JsonBody
from turnkeeper.api.fields import Fields
from turnkeeper.api.intake import MAX_REASON_CHARACTERS


def parse_reason(body: JsonBody) -> str | None:
    """Why, in the operator's own words. Raises `RequestRefused`."""
    fields = Fields(body.members)
    fields.close({"reason"}, {})
    reason = fields.text("reason", max_characters=MAX_REASON_CHARACTERS)
    fields.finish()
    return reason
