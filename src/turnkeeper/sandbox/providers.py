"""Model providers as data: where a model lives, what it can do, which parameters an agent may set.

Knows no network. A key is a secret whose `repr` is stars; it is read in one place, where the gateway writes the
header that carries it, and it never enters a box.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import SecretStr

from turnkeeper.errors import TurnkeeperError

ProviderKind: TypeAlias = Literal["openai", "anthropic", "local"]
OutputCapMember: TypeAlias = Literal["max_tokens", "max_completion_tokens"]

OUTPUT_CAP_MEMBERS: Final[tuple[OutputCapMember, ...]] = ("max_completion_tokens", "max_tokens")
TUNABLE_PARAMETERS: Final = frozenset(
    {
        "frequency_penalty",
        "presence_penalty",
        "reasoning_effort",
        "seed",
        "stop",
        "temperature",
        "top_p",
        *OUTPUT_CAP_MEMBERS,
    }
)
"""What an agent's `params` may hold, and what a harness may ask for."""

BYTES_PER_TOKEN: Final = 3
"""Byte-level tokenizers need about four bytes a token for English prose and more than three for code and most
scripts; three errs upward for those. Strings of digits and rare scripts can need more tokens than this says: the
error of one call's input is what a budget may overshoot by (contract 8)."""

# OpenAI's own newer models refuse `max_tokens`; most servers that imitate it know no other name.
_HOSTS_WITH_COMPLETION_TOKENS: Final = frozenset({"api.openai.com"})


class ProviderMisconfigured(TurnkeeperError):
    """A provider's settings cannot work."""

    code = "provider_misconfigured"


class ModelParamsRefused(TurnkeeperError):
    """An agent's model parameters have a name or a value this platform does not pass on."""

    code = "model_params_refused"


@dataclass(frozen=True, slots=True)
class ProviderLimits:
    """What all turns together may ask of one provider. `None` is no limit.

    A call that does not fit waits for up to `max_wait_ms`. `read_timeout_ms` is the longest silence of a provider
    inside a call: a model that reasons without showing it says nothing for minutes.
    """

    max_calls_at_once: int | None = None
    max_calls_per_minute: int | None = None
    max_wait_ms: int = 60_000
    connect_timeout_ms: int = 10_000
    read_timeout_ms: int = 300_000


@dataclass(frozen=True, slots=True)
class Provider:
    """One `[providers.NAME]` entry. Raises `ProviderMisconfigured` for a `base_url` that is not plain http or https.

    `output_cap_member` is the name under which this server takes the cap on generated tokens.
    """

    name: str
    kind: ProviderKind
    base_url: str
    api_key: SecretStr | None = None
    tool_calls: bool = True
    output_cap_member: OutputCapMember = "max_tokens"
    limits: ProviderLimits = field(default_factory=ProviderLimits)

    def __post_init__(self) -> None:
        _check_base_url(self.name, self.base_url)

    def url(self, endpoint: str) -> str:
        """Where the gateway posts to: the root of the API and one of its endpoints."""
        return self.base_url.rstrip("/") + endpoint


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The one model a turn may call. `params` win over what the harness asks for.

    `aliases` are further names that a client may call it by (`*` at the end stands for anything): clients that people
    already use have a second, smaller model in mind for titles and summaries, and get this one.
    """

    provider: Provider
    model_id: str
    params: Mapping[str, object] = field(default_factory=dict[str, object])
    aliases: tuple[str, ...] = ()

    def answers_to(self, name: str) -> bool:
        """Whether a client may call the model by this name."""
        return name == self.model_id or any(_matches(name, alias) for alias in self.aliases)


def openai_provider(
    name: str, base_url: str, api_key: SecretStr | None = None, *, limits: ProviderLimits | None = None
) -> Provider:
    """A provider that speaks OpenAI's Chat Completions, or Responses, or both. Raises `ProviderMisconfigured`."""
    _check_base_url(name, base_url)
    newer = urlsplit(base_url).hostname in _HOSTS_WITH_COMPLETION_TOKENS
    cap: OutputCapMember = "max_completion_tokens" if newer else "max_tokens"
    return Provider(
        name, "openai", base_url, api_key, tool_calls=True, output_cap_member=cap, limits=limits or ProviderLimits()
    )


def anthropic_provider(
    name: str, base_url: str, api_key: SecretStr | None = None, *, limits: ProviderLimits | None = None
) -> Provider:
    """A provider that speaks Anthropic's Messages. Raises `ProviderMisconfigured`."""
    return Provider(name, "anthropic", base_url, api_key, limits=limits or ProviderLimits())


def local_provider(name: str, base_url: str, api_key: SecretStr) -> Provider:
    """The llama.cpp server this platform started itself; its small model does not call tools."""
    return Provider(name, "local", base_url, api_key, tool_calls=False)


def tokens_in_bytes(size_bytes: int) -> int:
    """The estimate for so many bytes of text, rounded up."""
    return -(-size_bytes // BYTES_PER_TOKEN)


def size_bytes_of(value: object) -> int:
    """The length of a JSON value as compact UTF-8 text."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace"))


def check_params(params: Mapping[str, object]) -> None:
    """Raises `ModelParamsRefused` naming the first parameter that is unknown or has an impossible value."""
    for name, value in params.items():
        if name not in TUNABLE_PARAMETERS:
            raise ModelParamsRefused(f"the model parameter {name[:64]!r} is not known", detail={"parameter": name[:64]})
        if name in OUTPUT_CAP_MEMBERS and not is_positive_integer(value):
            raise ModelParamsRefused(f"{name} must be a positive integer", detail={"parameter": name})


def is_positive_integer(value: object) -> bool:
    """Whether this is a JSON integer over zero."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _matches(name: str, alias: str) -> bool:
    return name.startswith(alias[:-1]) if alias.endswith("*") else name == alias


def _check_base_url(name: str, base_url: str) -> None:
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
        parts = urlsplit("")
    if not usable:
        raise ProviderMisconfigured(
            f"providers.{name}.base_url is not an http or https URL",
            hint="Write it like https://api.example.com/v1 .",
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ProviderMisconfigured(
            f"providers.{name}.base_url has credentials, a query or a fragment",
            hint="Put the key in api_key_env and leave only scheme, host, port and path.",
        )
