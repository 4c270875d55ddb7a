"""Why a database cannot be the Guardian's."""

from turnkeeper.errors import TurnkeeperError
from turnkeeper.guardian.ports import StoreFailed


class GuardianUrlInvalid(TurnkeeperError):
    """The URL names no database that the Guardian can use."""

    code = "store_url_invalid"


class StoreInUse(StoreFailed):
    """Another Guardian works on the database; the message says what is known of it."""

    code = "store_in_use"
