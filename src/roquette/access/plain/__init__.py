"""ACL 1.0 of Apache 4.x and 5.0 to 5.2, for old setups: accounts in plain_acl.yml and conf/acl/*.yml."""
