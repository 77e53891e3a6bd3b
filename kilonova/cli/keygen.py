"""`kilonova keygen`: the secrets that a fleet's processes share, made once and copied to where they are needed."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from kilonova.domain.errors import Refused

if TYPE_CHECKING:
    from cryptography import x509

SEAL_KEY, ADMIN_PASSWORD, TLS_KEY, TLS_CERT = "seal.key", "admin.password", "tls.key", "tls.crt"
DAYS = 365


def keygen(
    directory: Annotated[Path, Parameter(help="Directory for the files; it is created if it does not exist.")],
    *,
    tls_name: Annotated[
        list[str] | None,
        Parameter(negative=(), help="Also make a self-signed certificate for this host name or address; repeatable."),
    ] = None,
    tls_days: Annotated[int, Parameter(help="Days that the certificate is valid.")] = DAYS,
) -> None:
    """Make the secrets of a fleet in DIRECTORY: seal.key, admin.password and, with --tls-name, tls.key and tls.crt.

    Nothing that exists is replaced: a new seal.key would make every secret that the old one sealed unreadable.
    """
    from kilonova.runtime import new_key, new_password
    from kilonova.store.data_directory import write_secret

    names = tuple(tls_name or ())
    files = [SEAL_KEY, ADMIN_PASSWORD, *([TLS_KEY, TLS_CERT] if names else [])]
    for name in files:
        if (directory / name).exists():
            text = f"{directory / name} exists and is not replaced; name another directory, or move it away first"
            raise Refused("exists", text)
    if tls_days < 1:
        raise Refused("usage", f"--tls-days {tls_days}: must be 1 or more")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Refused("usage", f"cannot create {directory}: {error.strerror}") from error
    contents = {SEAL_KEY: new_key(), ADMIN_PASSWORD: new_password()}
    if names:
        contents[TLS_KEY], contents[TLS_CERT] = self_signed(names, tls_days)
    for name, text in contents.items():
        write_secret(directory / name, text.rstrip("\n"))
    print(_summary(directory.absolute(), bool(names)))


def _summary(directory: Path, with_tls: bool) -> str:
    lines = [
        f"# made in {directory}; for the configuration of every api and conductor:",
        "[secrets]",
        f'key_file = "{directory / SEAL_KEY}"',
        "[identity]",
        f'admin_password_file = "{directory / ADMIN_PASSWORD}"',
    ]
    if with_tls:
        lines += ["[wsgi]", f'ssl_cert_file = "{directory / TLS_CERT}"', f'ssl_key_file = "{directory / TLS_KEY}"']
    return "\n".join(lines)


def self_signed(names: tuple[str, ...], days: int) -> tuple[str, str]:
    """Return a key and a certificate for it in PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0][:64])])
    now = datetime.now(UTC)
    try:
        alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
    except ValueError as error:
        raise Refused("usage", f"--tls-name {' '.join(names)}: {error}") from None
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
        .add_extension(alternatives, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    return secret.decode(), certificate.public_bytes(pem).decode()


def _alternative(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
