"""TLS for the hosts that get secrets: an authority of one box, which only this box trusts (contract 2.13).

A secret is put into a request, so a request has to be read. For the hosts of a box's secrets, and for no other, the
proxy is the far end of the program's TLS, and speaks TLS of its own to the host, whose certificate it verifies. The
authority is made with the box, may vouch for these hosts only, and its key is never written anywhere.
"""

import os
import ssl
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from turnkeeper.destinations import HostRule

BUNDLE_NAME: Final = "ca.pem"
BUNDLE_VARIABLES: Final = (
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "AWS_CA_BUNDLE",
)
"""Where programs are told which authorities to trust."""
VALID_FOR: Final = timedelta(days=2)
_CLOCK_SKEW: Final = timedelta(hours=1)
_PROTOCOLS: Final = ("http/1.1",)


class BoxAuthority:
    """Vouches for the hosts of one box's secrets."""

    def __init__(self, rules: Sequence[HostRule], now: datetime) -> None:
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._own_certificate(rules)
        self._contexts: dict[str, ssl.SSLContext] = {}

    @property
    def bundle(self) -> str:
        """What programs in the box trust: the authorities of this machine, and this one."""
        return system_bundle() + _pem(self._certificate).decode()

    def context(self, host: str) -> ssl.SSLContext:
        """Our side of a program's TLS to this host. A program that asks for another name is not answered."""
        known = self._contexts.get(host)
        if known is None:
            known = self._contexts[host] = self._context(host)
        return known

    def _context(self, host: str) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.set_alpn_protocols(list(_PROTOCOLS))
        key = ec.generate_private_key(ec.SECP256R1())
        _load_chain(made, _pem(self._leaf(host, key)) + _pem(self._certificate), key)

        def check(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> int | None:
            return None if name is None or name.lower() == host else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

        made.sni_callback = check
        return made

    def _own_certificate(self, rules: Sequence[HostRule]) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Turnkeeper egress of one box")])
        permitted = [x509.DNSName(host) for host in sorted({rule.name for rule in rules})]
        usage = _usage(may_sign=True)
        return (
            self._builder(name, name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.NameConstraints(permitted, None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _leaf(self, host: str, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Turnkeeper egress")])
        return (
            self._builder(subject, self._certificate.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(_usage(may_sign=False), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _builder(
        self, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _CLOCK_SKEW)
            .not_valid_after(self._now + VALID_FOR)
        )


@cache
def origin_context() -> ssl.SSLContext:
    """Our side of TLS to a host: its certificate is verified against this machine's authorities."""
    made = ssl.create_default_context()
    made.set_alpn_protocols(list(_PROTOCOLS))
    return made


@cache
def system_bundle() -> str:
    """The authorities that this machine trusts."""
    found = ssl.create_default_context().get_ca_certs(binary_form=True)
    return "".join(ssl.DER_cert_to_PEM_cert(certificate) for certificate in found)


def _usage(*, may_sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not may_sign,
        key_cert_sign=may_sign,
        crl_sign=may_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _load_chain(context: ssl.SSLContext, chain: bytes, key: ec.EllipticCurvePrivateKey) -> None:
    # The library reads keys from files only; this one is memory.
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    descriptor = os.memfd_create("egress")
    try:
        os.write(descriptor, pem + chain)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
