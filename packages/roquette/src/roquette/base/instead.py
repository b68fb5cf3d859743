"""Commands of ours that stand for parts of Apache's which are not here."""

from typing import Final

ACL_IMPORT: Final = "roquette acl import conf/plain_acl.yml"
"""Makes users and rules of the accounts of access control 1.0."""
