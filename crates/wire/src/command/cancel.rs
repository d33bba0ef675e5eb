//! CANCEL, MS-SMB2 2.2.30. It has no response.

super::empty_messages! {
    /// MS-SMB2 2.2.30. Cancels the operation that the header's MessageId or
    /// AsyncId names.
    Request, "CANCEL request";
}
