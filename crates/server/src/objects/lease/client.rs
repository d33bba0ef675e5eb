//! The clients that leases belong to: MS-SMB2 3.3.1.11.

use frevo_crypto::sha256;
use frevo_wire::dtyp::Guid;
use frevo_wire::fscc::fold_name;

/// The client that a lease belongs to: a ClientGuid of an account. The first half is the account's
/// alone (`LeaseOwner::is_known_to`).
///
/// Deviation: MS-SMB2 3.3.1.11 keeps leases by ClientGuid alone. The ClientGuid is no secret
/// and any client may send it, so that another account with the LeaseKey of a lease would be
/// taken for its holder: its writes would break nothing, and with the key on another file it
/// would shut the holder out.
pub fn client_id(client_guid: Guid, user: &str) -> Guid {
    let user = fold_name(user);
    let mut bytes = client_guid.0.to_vec();
    bytes.extend_from_slice(user.as_bytes());
    let mut id = [0; 16];
    id[..8].copy_from_slice(&sha256(user.as_bytes())[..8]);
    id[8..].copy_from_slice(&sha256(&bytes)[..8]);
    Guid(id)
}
