"""Hot reload: whole bundles only, and the old one while the new one is wrong."""

import asyncio
from collections.abc import Mapping

from tests.unit.policy.samples import tool_call

from turnkeeper.acs import Disposition
from turnkeeper.errors import TurnkeeperError
from turnkeeper.policy.bundle import bundle_digest, parse_bundle
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.reload import Change, Look, PolicyReloader, SwitchedEngine, require_passing

ALLOW = b"version: 1\nname: house\ndefault: allow\nrules: []\n"
DENY = ALLOW.replace(b"default: allow", b"default: deny")
CASE = b"tests:\n  - {name: shell is allowed, facts: {hook: toolCallRequest, tool: shell}, expect: {decision: allow}}\n"


class Place:
    """A folder that changes, with a reloader that looks at it."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {"policy.yaml": ALLOW}
        self.gone = False
        self.engine = SwitchedEngine(CelEngine(parse_bundle(self.files).rules))
        self._reloader = PolicyReloader(self._read, self._build, self.engine, bundle_digest(self.files))

    def look(self) -> Look:
        """One look."""
        return asyncio.run(self._reloader.look())

    def disposition(self) -> Disposition:
        """What is decided now."""
        return self.engine.evaluate(tool_call()).disposition

    async def _read(self) -> Mapping[str, bytes]:
        if self.gone:
            raise TurnkeeperError("the folder is gone")
        return dict(self.files)

    async def _build(self, files: Mapping[str, bytes]) -> CelEngine:
        bundle = parse_bundle(files)
        engine = CelEngine(bundle.rules)
        await require_passing(bundle, engine)
        return engine


def test_a_changed_policy_is_taken_once_it_reads_the_same_twice() -> None:
    place = Place()
    place.files = {"policy.yaml": DENY}
    assert place.look().change is Change.UNSETTLED
    assert place.disposition() is Disposition.ALLOW
    taken = place.look()
    assert taken == Look(Change.TAKEN, bundle_digest(place.files))
    assert place.disposition() is Disposition.DENY
    assert place.look().change is Change.UNCHANGED


def test_a_folder_that_is_still_being_written_is_not_taken() -> None:
    place = Place()
    for index in range(5):
        place.files = {"policy.yaml": DENY + b"#" * index}
        assert place.look().change is Change.UNSETTLED
    assert place.disposition() is Disposition.ALLOW


def test_a_policy_that_is_wrong_is_refused_with_the_reason_and_the_old_one_holds() -> None:
    place = Place()
    before = place.engine.reference
    place.files = {"policy.yaml": DENY + b"extra: 1\n"}
    place.look()
    refused = place.look()
    assert refused.change is Change.REFUSED
    assert "extra" in (refused.problem or "")
    assert place.engine.reference == before
    assert place.look().change is Change.UNCHANGED


def test_a_policy_whose_own_tests_fail_is_refused() -> None:
    place = Place()
    place.files = {"policy.yaml": DENY, "tests/a.yaml": CASE}
    place.look()
    refused = place.look()
    assert refused.change is Change.REFUSED
    assert "'shell is allowed': expected allow, got deny" in (refused.problem or "")
    assert place.disposition() is Disposition.ALLOW


def test_a_refused_policy_is_taken_once_it_is_mended() -> None:
    place = Place()
    place.files = {"policy.yaml": b"{"}
    place.look()
    assert place.look().change is Change.REFUSED
    place.files = {"policy.yaml": DENY}
    place.look()
    assert place.look().change is Change.TAKEN


def test_a_place_that_cannot_be_read_changes_nothing() -> None:
    place = Place()
    place.gone = True
    assert place.look().change is Change.REFUSED
    place.gone = False
    assert place.look().change is Change.UNCHANGED
    assert place.disposition() is Disposition.ALLOW
