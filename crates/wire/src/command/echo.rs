//! ECHO, MS-SMB2 2.2.28 and 2.2.29.

super::empty_messages! {
    /// MS-SMB2 2.2.28. Asks whether the server is alive.
    Request, "ECHO request";
    /// MS-SMB2 2.2.29.
    Response, "ECHO response";
}
