"""Answers that hold secrets: AES-GCM under a key of the asker's own secret, so that who only passes his request on learns nothing."""

import hmac

from roquette.errors import RemoteProtocolError

NONCE = 12


def seal(secret: bytes, request_text: str, nonce: bytes, words: bytes) -> bytes:
    """Return bytes that only a holder of the secret can read, as the answer to the request `request_text`.

    Args:
        nonce: 12 random bytes, of this answer alone.
    """
    # Imported here: only brokers with users and replicas need it, and it takes 20 ms of CPU.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return nonce + AESGCM(_key(secret)).encrypt(nonce, words, request_text.encode())


def unseal(secret: bytes, request_text: str, sealed: bytes) -> bytes:
    """The words; raises RemoteProtocolError: they were sealed with another secret, for another request, or not at all."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(_key(secret)).decrypt(sealed[:NONCE], sealed[NONCE:], request_text.encode())
    except (InvalidTag, ValueError):
        words = (
            "the answer is not sealed with our secret, for this request: older versions do not seal"
        )
        raise RemoteProtocolError(words) from None


def _key(secret: bytes) -> bytes:
    return hmac.digest(secret, b"roquette-seal:1", "sha256")
