"""Frevo's interoperability run: real peers, one server, a judged table."""
