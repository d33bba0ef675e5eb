//! TREE_DISCONNECT, MS-SMB2 2.2.11 and 2.2.12.

super::empty_messages! {
    /// MS-SMB2 2.2.11. Ends the tree connect of the header.
    Request, "TREE_DISCONNECT request";
    /// MS-SMB2 2.2.12.
    Response, "TREE_DISCONNECT response";
}
