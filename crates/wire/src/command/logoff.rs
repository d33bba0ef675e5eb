//! LOGOFF, MS-SMB2 2.2.7 and 2.2.8.

super::empty_messages! {
    /// MS-SMB2 2.2.7. Ends the session of the header.
    Request, "LOGOFF request";
    /// MS-SMB2 2.2.8.
    Response, "LOGOFF response";
}
