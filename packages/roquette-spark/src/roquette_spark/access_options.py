"""Identity of a job at a closed cluster, and encryption of its connections: options of all formats that call servers.

Secrets are shown nowhere: not in plans, errors or `repr`. What no option says, the environment of the process that connects
says (`client/access.py`), so that secrets need not be options at all.
"""

import os
from dataclasses import dataclass

from roquette.base.options import option
from roquette.client.access import (
    Credentials,
    TlsOptions,
    access_of,
    credentials_from,
    read_keys,
    security_of,
    tls_from,
)
from roquette.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessOptions:
    """The options; those of a format inherit them."""

    access_key: str = option(
        "",
        "the user who signs requests",
        unset="`$ROQUETTE_ACCESS_KEY`",
    )
    secret_key: str = option(
        "",
        "the user's secret",
        secret=True,
        unset="`$ROQUETTE_SECRET_KEY`",
    )
    secret_key_file: str = option(
        "",
        "instead: a file with the secret, or with lines `accessKey=` and `secretKey=`; at the driver and at executors",
        unset="`$ROQUETTE_ACCESS_KEY_FILE`",
    )
    security_token: str = option("", "of a temporary secret", secret=True)
    tls: bool | None = option(
        None,
        "connections use TLS",
        name="tls.enable",
        unset="`true` with another `tls.…` of these, else `$ROQUETTE_TLS`",
    )
    tls_ca: str = option(
        "",
        "the authorities of servers' certificates, a PEM file at the driver and at executors, as the next two",
        name="tls.ca",
        also=["tls.client.trustCertPath"],
        unset="the system's",
    )
    tls_certificate: str = option(
        "", "what the job shows of itself", name="tls.certificate", also=["tls.client.certPath"]
    )
    tls_key: str = option(
        "",
        "and its key",
        name="tls.key",
        also=["tls.client.keyPath"],
        unset="in the file of `tls.certificate`",
    )
    tls_key_password: str = option(
        "", "opens that key", name="tls.keyPassword", also=["tls.client.keyPassword"], secret=True
    )
    tls_verify: bool = option(
        True,
        "servers' certificates are checked; `false` believes whoever answers",
        name="tls.verify",
        also=["tls.client.authServer"],
    )
    tls_verify_host: bool = option(
        True, "and name the host or address that is called", name="tls.verifyHost"
    )

    @property
    def credentials(self) -> Credentials | None:
        """Credentials that sign. Raises ConfigError: a part is missing, or the file cannot be read."""
        if self.secret_key_file:
            if self.secret_key:
                raise ConfigError(
                    "rocketmq: options secretKey and secretKeyFile exclude each other: give one"
                )
            return read_keys(self.secret_key_file, self.access_key)
        if not (self.access_key or self.secret_key or self.security_token):
            return credentials_from(os.environ)
        if not self.access_key or not self.secret_key:
            given, missing = "accessKey", "secretKey or secretKeyFile"
            if not self.access_key:
                given, missing = "secretKey or securityToken", "accessKey"
            raise ConfigError(f"rocketmq: option {given} is given without {missing}")
        return access_of(
            {
                "access_key": self.access_key,
                "secret_key": self.secret_key,
                "security_token": self.security_token,
            }
        )[1]

    @property
    def tls_options(self) -> TlsOptions | None:
        """TLS of the connections; None: they are plain. Raises ConfigError."""
        given = TlsOptions(
            ca=self.tls_ca,
            certificate=self.tls_certificate,
            key=self.tls_key,
            key_password=self.tls_key_password,
            verify=self.tls_verify,
            verify_host=self.tls_verify_host,
        )
        if self.tls is None and given == TlsOptions():
            return tls_from(os.environ)
        return None if self.tls is False else given

    @property
    def access(self) -> tuple[TlsOptions | None, Credentials | None]:
        """Both: what connections are made with, and found by."""
        return self.tls_options, self.credentials

    def check_access(self) -> None:
        """Raise ConfigError for what cannot hold: before a job begins."""
        security_of(*self.access)
