"""Providers as data."""

import pytest
from pydantic import SecretStr

from turnkeeper.sandbox.providers import (
    ModelParamsRefused,
    Provider,
    ProviderMisconfigured,
    check_params,
    local_provider,
    openai_provider,
)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/v1",
        "file:///etc/passwd",
        "example.com/v1",
        "http://",
        "http:///v1",
        "http://host:99999/v1",
        "http://[::1/v1",
        "http://user:word@host/v1",
        "https://host/v1?api-version=1",
        "https://host/v1#x",
    ],
)
def test_a_base_url_that_is_not_plain_http_is_refused(url: str) -> None:
    with pytest.raises(ProviderMisconfigured) as refused:
        openai_provider("stub", url)
    assert "stub" in refused.value.message
    assert "word" not in str(refused.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9000/v1", "http://127.0.0.1:9000/v1/", "http://[::1]:9000/v1"])
def test_the_one_url_is_under_the_base(url: str) -> None:
    assert openai_provider("stub", url).url("/chat/completions") == url.rstrip("/") + "/chat/completions"


def test_a_key_does_not_show_in_a_repr() -> None:
    provider = Provider("stub", "openai", "https://host/v1", SecretStr("sk-very-secret"))

    assert "sk-very-secret" not in repr(provider)


def test_the_local_model_calls_no_tools() -> None:
    assert not local_provider("local", "http://127.0.0.1:1/v1", SecretStr("k")).tool_calls


@pytest.mark.parametrize("params", [{}, {"temperature": 0.1, "seed": 4}, {"max_tokens": 5}])
def test_ordinary_parameters_are_fine(params: dict[str, object]) -> None:
    check_params(params)


@pytest.mark.parametrize("params", [{"model": "x"}, {"messages": []}, {"max_tokens": 0}, {"max_tokens": "5"}, {"x": 1}])
def test_other_parameters_are_refused_by_name(params: dict[str, object]) -> None:
    with pytest.raises(ModelParamsRefused) as refused:
        check_params(params)
    assert refused.value.detail["parameter"] in params
