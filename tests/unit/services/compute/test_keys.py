"""Fingerprints as ssh-keygen and openssl give them, and pairs whose halves belong together."""

from __future__ import annotations

import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_public_key, pkcs12

from kilonova.domain.errors import Refused
from kilonova.services.compute.keys import BITS, SSH, X509, _utf8_string, fingerprint_of, make_pair
from tests.unit.services.compute.keys import CERTIFICATE, ED25519, FINGERPRINTS, RSA


@pytest.mark.parametrize("key", FINGERPRINTS)
def test_fingerprints_are_those_of_the_known_tools(key: str) -> None:
    assert fingerprint_of(key, X509 if key is CERTIFICATE else SSH) == FINGERPRINTS[key]


@pytest.mark.parametrize("key", ["", " ", "ssh-rsa", "ssh-rsa JUNK x", "ssh-rsa " + "A" * 2048 + " x", "é", RSA[:200]])
def test_what_is_no_key_is_refused(key: str) -> None:
    for kind in (SSH, X509):
        with pytest.raises(Refused) as why:
            fingerprint_of(key, kind)
        assert why.value.code == "bad_request" and why.value.message.startswith("Keypair data is invalid: ")


def test_one_kind_is_not_taken_for_the_other() -> None:
    for key, kind in ((ED25519, X509), (CERTIFICATE, SSH)):
        with pytest.raises(Refused):
            fingerprint_of(key, kind)


def test_a_made_pair_belongs_together() -> None:
    pair = make_pair(SSH, "bob", 0.0)
    private = load_pem_private_key(pair.private_key.encode(), None)
    public = load_ssh_public_key(pair.public_key.encode())
    assert pair.private_key.startswith("-----BEGIN RSA PRIVATE KEY-----\n")
    assert private.public_key() == public and private.key_size == BITS  # type: ignore[union-attr]
    assert pair.fingerprint == fingerprint_of(pair.public_key, SSH)


def test_a_made_certificate_names_its_user_and_comes_with_its_key() -> None:
    pair = make_pair(X509, "bob" * 40, 1_700_000_000.0)  # longer than a common name may be
    certificate = x509.load_pem_x509_certificate(pair.public_key.encode())
    assert certificate.subject.rfc4514_string() == f"CN={('bob' * 40)[:64]}"
    assert certificate.not_valid_before_utc.timestamp() == 1_700_000_000
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [one.dotted_string for one in usage] == ["1.3.6.1.5.5.7.3.2"]  # to log in as a client
    assert [one.critical for one in certificate.extensions] == [False, False]  # who does not know them takes it too
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [name.value for name in names.get_values_for_type(x509.OtherName)] == [
        b"\x0c\x81\x82" + b"bob" * 40 + b"@localhost"
    ]
    key, packed, _ = pkcs12.load_key_and_certificates(base64.b64decode(pair.private_key), None)
    assert packed == certificate and key is not None and key.public_key() == certificate.public_key()
    assert pair.fingerprint == fingerprint_of(pair.public_key, X509)


@pytest.mark.parametrize(
    ("characters", "begins", "length"),
    [(0, b"\x0c\x00", 0), (127, b"\x0c\x7f", 127), (128, b"\x0c\x81\x80", 128), (300, b"\x0c\x81\xff", 255)],
)
def test_names_in_certificates_say_their_length(characters: int, begins: bytes, length: int) -> None:
    assert _utf8_string("a" * characters) == begins + b"a" * length
