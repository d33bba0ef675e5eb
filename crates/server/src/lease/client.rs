//! The clients that leases belong to: MS-SMB2 3.3.1.11.

use frevo_crypto::sha256;
use frevo_wire::dtyp::Guid;

/// The client that a lease belongs to: a ClientGuid of an account.
///
/// Deviation: MS-SMB2 3.3.1.11 keeps leases by ClientGuid alone. The ClientGuid is no secret
/// and any client may send it, so that another account with the LeaseKey of a lease would be
/// taken for its holder: its writes would break nothing, and with the key on another file it
/// would shut the holder out.
pub fn client_id(client_guid: Guid, user: &str) -> Guid {
    let mut bytes = client_guid.0.to_vec();
    bytes.extend_from_slice(user.to_lowercase().as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&sha256(&bytes)[..16]);
    Guid(id)
}
