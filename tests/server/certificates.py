"""Certificates for tests of TLS."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def self_signed(directory: Path, *names: str) -> str:
    """A certificate of 127.0.0.1 and of names, and its key, as files; the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "b")])
    now = dt.datetime.now(dt.UTC)
    local = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([local, *map(x509.DNSName, names)]), critical=False
        )
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    (directory / "cert.pem").write_bytes(certificate)
    (directory / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate.decode()


def certificate(
    directory: Path,
    name: str,
    issuer: Path | None = None,
    *,
    address: str = "127.0.0.1",
    subject: tuple[str, ...] = (),
) -> Path:
    """`name.pem` and `name.key`, signed by another or by itself; its subject may be others."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.NameAttribute(x509.NameOID.COMMON_NAME, each) for each in subject or (name,)]
    subject_name = x509.Name(names)
    signer, signed_by = key, subject_name
    if issuer is not None:
        loaded = serialization.load_pem_private_key(issuer.with_suffix(".key").read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signer, signed_by = loaded, x509.load_pem_x509_certificate(issuer.read_bytes()).subject
    now = dt.datetime.now(dt.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject_name)
        .issuer_name(signed_by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName(
                [
                    *map(x509.DNSName, ("localhost", name)),
                    x509.IPAddress(ipaddress.ip_address(address)),
                ]
            ),
            critical=False,
        )
        .sign(signer, hashes.SHA256())
    )
    path = directory / f"{name}.pem"
    path.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    path.with_suffix(".key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path
