"""Questions about traces: nothing of ours exports or reads any, so there is no answer to give."""

from tests.conformance.corpus.answers import Question, Said, not_claimed


def spanned(_: Question) -> Said:
    """A span beside the message it is made of."""
    return not_claimed("acs-trace")


def exported(_: Question) -> Said:
    """An OCSF event."""
    return not_claimed("acs-trace")


def read(_: Question) -> Said:
    """Two streams, and what a reader made of them."""
    return not_claimed("acs-trace")
