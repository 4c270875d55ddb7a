import pytest

from turnkeeper.sandbox import seccomp
from turnkeeper.sandbox.boxes import SandboxUnavailable

BPF_INSTRUCTION_BYTES = 8


def test_the_filter_is_a_bpf_program_that_is_the_same_every_time() -> None:
    program = seccomp.build_filter()
    assert len(program) % BPF_INSTRUCTION_BYTES == 0
    assert len(program) > 100 * BPF_INSTRUCTION_BYTES
    assert program == seccomp.build_filter()


def test_without_libseccomp_there_is_no_box_and_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "pyseccomp", None)
    with pytest.raises(SandboxUnavailable) as caught:
        seccomp.build_filter()
    assert "libseccomp2" in str(caught.value.hint)
