"""Keys themselves: reading public ones for their fingerprint, making new pairs. All of it costs CPU: making a pair
belongs into a thread."""

from __future__ import annotations

import base64
import binascii
import hashlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from kilonova.domain.errors import Refused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

SSH, X509 = "ssh", "x509"
BITS = 2048
COMMENT = "Generated-by-Kilonova"
VALID_FOR = timedelta(days=3650)
PRINCIPAL_NAME = "1.3.6.1.4.1.311.20.2.3"  # how Windows maps a certificate to a user
LONGEST_COMMON_NAME = 64  # of X.509 itself


class Pair(NamedTuple):
    private_key: str
    public_key: str
    fingerprint: str


def fingerprint_of(public_key: str, kind: str) -> str:
    """Return the fingerprint. Raise `Refused` if it is not a key of this kind."""
    return _of_certificate(public_key) if kind == X509 else _of_ssh(public_key)


def _of_ssh(public_key: str) -> str:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    try:
        load_ssh_public_key(public_key.encode())
        body = base64.b64decode(public_key.split()[1])
    except (ValueError, UnsupportedAlgorithm, IndexError, binascii.Error) as error:
        raise Refused("bad_request", "Keypair data is invalid: failed to generate fingerprint") from error
    return _colons(hashlib.md5(body, usedforsecurity=False).hexdigest())


def _of_certificate(certificate: str) -> str:
    from cryptography.hazmat.primitives.hashes import SHA1
    from cryptography.x509 import load_pem_x509_certificate

    try:
        return _colons(load_pem_x509_certificate(certificate.encode()).fingerprint(SHA1()).hex())
    except (ValueError, TypeError) as error:
        raise Refused("bad_request", "Keypair data is invalid: failed to generate X509 fingerprint.") from error


def _colons(digest: str) -> str:
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))


def make_pair(kind: str, user_id: str, now: float) -> Pair:
    """Make a key pair. This takes up to a second."""
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, BITS)
    return _certified(key, user_id, now) if kind == X509 else _ssh_pair(key)


def _ssh_pair(key: RSAPrivateKey) -> Pair:
    from cryptography.hazmat.primitives import serialization as forms

    private = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.TraditionalOpenSSL, forms.NoEncryption())
    public = key.public_key().public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)
    text = f"{public.decode()} {COMMENT}"
    return Pair(private.decode(), text, _of_ssh(text))


def _certified(key: RSAPrivateKey, user_id: str, now: float) -> Pair:
    """Return a self-signed certificate, and its key as PKCS #12 in base64: a Windows guest needs them for log-in."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.serialization import pkcs12
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user_id[:LONGEST_COMMON_NAME])])
    begins = datetime.fromtimestamp(now, UTC)
    principal = x509.OtherName(x509.ObjectIdentifier(PRINCIPAL_NAME), _utf8_string(f"{user_id}@localhost"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + VALID_FOR)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([principal]), critical=False)
        .sign(key, hashes.SHA256())
    )
    text = certificate.public_bytes(serialization.Encoding.PEM).decode()
    packed = pkcs12.serialize_key_and_certificates(None, key, certificate, None, serialization.NoEncryption())
    return Pair(base64.b64encode(packed).decode(), text, _of_certificate(text))


def _utf8_string(text: str) -> bytes:
    """Return the text as a DER string, as `OtherName` expects it."""
    body = text.encode()[:255]
    length = bytes([len(body)]) if len(body) < 128 else bytes([0x81, len(body)])
    return b"\x0c" + length + body
