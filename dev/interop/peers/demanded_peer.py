"""Clients that ask for no encryption, on a server that demands it; the argument is the client.

The table of clients in docs/user-guide.md says what each shows.
"""

import os
import sys

from report import check

address, port, share, user, password = (os.environ["SMB_" + k] for k in ("ADDR", "PORT", "SHARE", "USER", "PASS"))


def smbprotocol():
    """Seals when the server's answer to the logon demands it."""
    import smbclient

    smbclient.listdir(rf"\\{address}\{share}", username=user, password=password, port=int(port))


def pysmb():
    """Cannot encrypt: its NEGOTIATE offers nothing newer than SMB 2.0.2."""
    from smb.SMBConnection import SMBConnection

    connection = SMBConnection(user, password, "peer", "server", use_ntlm_v2=True, is_direct_tcp=True)
    try:
        accepted = connection.connect(address, int(port), timeout=10)
    except Exception as e:
        print(f"pysmb: {type(e).__name__}: {e}", file=sys.stderr)
        assert isinstance(e, ConnectionError) or "reset" in str(e) or "NotConnected" in type(e).__name__, repr(e)
    else:
        raise AssertionError(f"a logon that ended with {accepted}")


with check(sys.argv[1]):
    {"smbprotocol": smbprotocol, "pysmb": pysmb}[sys.argv[1]]()
