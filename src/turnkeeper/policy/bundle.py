"""A policy as a folder: `policy.yaml`, `*.cedar`, and `tests/*.yaml`, read as one thing with one version.

Answers for a digest over every file, so that a decision names exactly what decided it, and for refusing a folder with
anything in it that would be ignored. Gets names and bytes; who reads the folder is not its business. Pure.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from turnkeeper.acs import Disposition, canonicalize_safe
from turnkeeper.policy.cases import PolicyCase, parse_cases
from turnkeeper.policy.document import rejected
from turnkeeper.policy.rules import MAX_POLICY_BYTES, RuleSet, parse_rules
from turnkeeper.policy.settings import HostedSettings

POLICY_FILE: Final = "policy.yaml"
CEDAR_SUFFIX: Final = ".cedar"
TESTS_FOLDER: Final = "tests/"
NOTES: Final = frozenset({"README.md"})
MAX_FILES: Final = 200
MAX_BUNDLE_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bundle:
    """A policy that was read completely. `cedar` is the text of all its Cedar files; empty where it has none."""

    rules: RuleSet
    cases: tuple[PolicyCase, ...] = ()
    cedar: str = ""
    cedar_settings: HostedSettings | None = None

    @property
    def name(self) -> str:
        """What decisions call the policy."""
        return self.rules.name

    @property
    def author(self) -> str | None:
        """Who answers for the policy, as it says itself."""
        return self.rules.author

    @property
    def version(self) -> str:
        """The digest that decisions cite."""
        return self.rules.digest

    @property
    def default(self) -> Disposition:
        """What holds where nothing speaks."""
        return self.rules.default


def single_file(content: bytes) -> Bundle:
    """A rule file as a bundle of its own; its version is the digest of its bytes. Raises `PolicyRejected`."""
    rules = parse_rules(content)
    if rules.cedar is not None:
        raise rejected("engines.cedar", "needs a folder with the policies that it is to evaluate")
    return Bundle(rules)


def parse_bundle(files: Mapping[str, bytes]) -> Bundle:
    """The bundle in a folder's files, by their paths in it with slashes. Raises `PolicyRejected`."""
    _check_names(files)
    rules = replace(parse_rules(files[POLICY_FILE]), digest=bundle_digest(files))
    # Which policies the Cedar files hold is known to Cedar alone; a test that cites another one fails.
    known = None if rules.cedar is not None else frozenset(rule.id for rule in rules.rules)
    cases: list[PolicyCase] = []
    for name in sorted(files):
        if name.startswith(TESTS_FOLDER):
            cases += parse_cases(files[name], name, known)
    cedar = "\n".join(_text(files[name], name) for name in sorted(files) if name.endswith(CEDAR_SUFFIX))
    if bool(cedar) != (rules.cedar is not None):
        problem = (
            "is given, and there is no *.cedar file" if rules.cedar else "is required where there are *.cedar files"
        )
        raise rejected("engines.cedar", problem)
    return Bundle(rules, tuple(cases), cedar, rules.cedar)


def bundle_digest(files: Mapping[str, bytes]) -> str:
    """The version of a folder: changes with any byte of any file, and with any name."""
    listed = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return "sha256:" + hashlib.sha256(canonicalize_safe({"files": listed})).hexdigest()


def _check_names(files: Mapping[str, bytes]) -> None:
    if POLICY_FILE not in files:
        raise rejected(POLICY_FILE, "is missing from the folder")
    if len(files) > MAX_FILES or sum(map(len, files.values())) > MAX_BUNDLE_BYTES:
        raise rejected("", f"has more than {MAX_FILES} files or {MAX_BUNDLE_BYTES} bytes")
    for name, content in files.items():
        if not _is_known(name):
            raise rejected(name, f"would be ignored; a policy has {POLICY_FILE}, *{CEDAR_SUFFIX}, {TESTS_FOLDER}*.yaml")
        if len(content) > MAX_POLICY_BYTES:
            raise rejected(name, f"has more than {MAX_POLICY_BYTES} bytes")


def _is_known(name: str) -> bool:
    if name.startswith(TESTS_FOLDER):
        return "/" not in name.removeprefix(TESTS_FOLDER) and name.endswith(".yaml")
    return "/" not in name and (name == POLICY_FILE or name in NOTES or name.endswith(CEDAR_SUFFIX))


def _text(content: bytes, name: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise rejected(name, "is not UTF-8") from error
