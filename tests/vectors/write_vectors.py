"""Writes the vectors in this folder from a folder of ACS vectors: `python tests/vectors/write_vectors.py SOURCE`.

Takes over data (keys, envelopes, hashes, numbers, tables), not words, in a form of our own that any language can run.
Where implementations disagree, the expectation is the reading that this project takes.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent


def main(source: Path) -> None:
    """Writes every vector file."""
    crypto, tables = _read(source, "crypto"), _read(source, "tables")
    _write("hmac", _hmac(crypto))
    _write("chain", _chain(_read(source, "chain")))
    _write("jcs", _jcs(_read(source, "jcs")))
    _write("timestamps", _timestamps(_read(source, "timestamps")))
    _write("handshake", {"cases": list(_handshakes(_read(source, "handshake")))})
    _write("modify-composition", _modifications(_read(source, "modify-composition")))
    _write("wrapped-mcp", _wrapped(_read(source, "wrapped-mcp")))
    categories = [*_read(source, "enforcement-negative")["vectors"], *_read(source, "revocation")["vectors"]]
    _write("categories", {"cases": [_category(case) for case in categories]})
    names = ("permitted_dispositions", "writes_context_entry", "error_codes", "profiles", "signature_algorithms")
    _write("tables", {name: tables[name] for name in names})


def _modifications(composition: dict[str, Any]) -> dict[str, Any]:
    lists = ("adapter_root_cases", "payload_root_cases")
    return {
        name: [
            {"modifications": case["modifications"], "expected": "VALID" if case["expected"] == "VALID" else "REFUSED"}
            for case in composition[name]
        ]
        for name in lists
    }


def _wrapped(probes: dict[str, Any]) -> dict[str, Any]:
    return {
        "method": f"protocols/MCP/{probes['wrapped_method']}",
        "valid": probes["valid_payloads"],
        "invalid": [payload for payload in probes["invalid_payloads_-32602"] if isinstance(payload, dict)],
        "names": probes["method_names"],
        "negotiation": [
            case["client"] | {"evaluated": case["expect"] == "evaluated"} for case in probes["negotiation"]
        ],
    }


def _category(case: dict[str, Any]) -> dict[str, Any]:
    members = {name: case[name] for name in ("id", "category", "input")}
    return members | {"expected": case["expected"]["verdict"]}


def _hmac(crypto: dict[str, Any]) -> dict[str, Any]:
    cases = crypto["key_id_and_kdf_cases"]
    return {
        "derivations": [
            {name: case[name] for name in ("id", "secret_hex", "session_id", "session_key_hex")}
            for case in crypto["key_derivation"]
        ],
        "signed": [
            {
                "id": case["id"],
                "place": case["signature_location"].partition(".")[0],
                "secret_hex": case["secret_hex"],
                "session_id": case["session_id"],
                "signing_input": case["signing_input"],
                "envelope": case["signed_envelope"],
            }
            for case in crypto["signatures"] + crypto["local_examples"]
        ],
        "requests": [
            {
                "id": case["id"],
                "secrets_hex": case["payload"]["verifier"]["secret_hex"],
                "request": case["payload"]["request"],
                "accepted": case["expected"]["verdict"] == "allow",
            }
            for case in cases
            if "verifier" in case["payload"]
        ],
        "answers": [
            {
                "id": case["id"],
                "secrets_hex": case["payload"]["observed_agent"]["secret_hex"],
                "request": case["payload"]["request"],
                "answer": case["payload"]["response"],
                "accepted": case["expected"]["verdict"] == "allow",
            }
            for case in cases
            if "observed_agent" in case["payload"]
        ],
        "other_derivations": [
            {name: case[name] for name in ("id", "secret_hex", "session_id", "session_key_hex")}
            for case in crypto["known_incompatible_derivations"]
        ],
        "malformed_values": crypto["malformed_signature_values"]["values"],
    }


def _chain(chain: dict[str, Any]) -> dict[str, Any]:
    hashed = chain["request_hash"]
    signed = hashed["same_params_with_signature_member"]
    return {
        "params": [
            {"params": hashed["params"], "canonical": hashed["jcs"], "sha256_hex": hashed["sha256_hex"]},
            {"params": signed["params"], "sha256_hex": signed["sha256_hex"]},
        ],
        "entries": [{"entry": item["entry"], "canonical_content": item["content_bytes"]} for item in chain["chain"]],
        "head": chain["final_chain_hash"],
        "not_the_hash_of_the_second": [
            value for name, value in chain["wrong_results"].items() if isinstance(value, str) and name != "correct"
        ],
        "not_the_hash_of_the_first": [chain["wrong_results"]["genesis_of_32_zero_bytes_for_first_entry"]["value"]],
    }


def _jcs(jcs: dict[str, Any]) -> dict[str, Any]:
    return {
        "numbers": jcs["numbers_ieee754_hex_to_text"],
        "documents": [{"text": item["input_json"], "canonical": item["canonical_json"]} for item in jcs["documents"]],
        "refused_texts": ["[NaN]", "[-Infinity]", "[9007199254740993]", '["\\ud800"]', '{"a":1,"a":2}', "[1e999]"],
    }


def _timestamps(timestamps: dict[str, Any]) -> dict[str, Any]:
    return {
        "valid": timestamps["valid"],
        "invalid": [*timestamps["invalid"], "2026-06-17T12:00:00", "2026-06-17T12:00:00+24:00", "2026-02-30T00:00:00Z"],
        "window": [
            {
                "offset_ms": item["offset_ms"],
                "skew_window_ms": item["skew_window_ms"],
                "accepted": item["expect"] != -32006,
            }
            for item in timestamps["window"]
        ],
    }


def _handshakes(handshake: dict[str, Any]) -> Iterable[dict[str, Any]]:
    readings: dict[str, Any] = {
        "same-major": {"negotiated_version": "0.1.0"},
        "no-common-transport": {"error": -32000, "data": {"reason": "no_common_transport"}},
        "order-client": {"methods_evaluated": ["steps/userMessage", "steps/toolCallRequest", "steps/toolCallResult"]},
        "provenance-deterministic": {"policy_requires_provenance": True},
        "unknown-field": {"profiles_accepted": ["acs-core"]},
        "profiles-intersection": {"profiles_accepted": ["acs-core"]},
    }
    for case in handshake["cases"]:
        expected = readings.get(case["id"], case["expect"])
        if "hello" in case and case["id"] != "missing-required":
            requires = case.get("guardian", {}).get("policy_requires_provenance", False)
            yield {
                "id": case["id"],
                "hello": case["hello"],
                "policy_requires_provenance": requires,
                "expected": expected,
            }


def _read(source: Path, name: str) -> dict[str, Any]:
    return json.loads((source / f"{name}.json").read_text())


def _write(name: str, content: dict[str, Any]) -> None:
    document = {"format": f"turnkeeper-vectors/{name}/1", **content}
    (TARGET / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
