"""What is said when the local model cannot be run."""

import pytest

from turnkeeper.sandbox.local_model import LocalModelUnavailable, find_weights


def test_a_missing_engine_is_named_with_what_to_install() -> None:
    with pytest.raises(LocalModelUnavailable) as refused:
        find_weights(engine="no_such_engine")
    assert "no_such_engine" in refused.value.message
    assert "turnkeeper[local]" in str(refused.value.hint)


def test_missing_weights_are_named_with_what_to_install() -> None:
    with pytest.raises(LocalModelUnavailable) as refused:
        find_weights(engine="json", package="no_such_weights")
    assert "no_such_weights" in refused.value.message
    assert "requirements/model.txt" in str(refused.value.hint)


def test_a_package_without_weights_in_it_has_none() -> None:
    with pytest.raises(LocalModelUnavailable):
        find_weights(engine="json", package="json")
