"""Attacks on a running server, each a check with figures.

`link` is the attacker's client, `ntlm` its logon with every field under the caller's control,
`scene` the server under attack and the bystanders whose latency counts.
"""
