//! Guests: clients without an account that a share lets in, MS-SMB2 3.3.5.5.3.

use frevo_auth::Guests;
use frevo_wire::Status;

use crate::base::limits::GUEST_SESSIONS;
use crate::command::request::Request;
use crate::objects::settings::Encryption;
use crate::shares::share::Use;

/// Returns the clients without an account that become guests, if a share lets any in from where the client
/// is. A guest has no key, so there is none where everything is encrypted.
pub(super) fn of(rq: &Request<'_>) -> Guests {
    let settings = &rq.connection.settings;
    let address = rq.connection.peer.ip();
    if settings.encryption == Encryption::Required || !rq.server().shares().let_guests_in(address) {
        return Guests::Nobody;
    }
    if settings.unknown_users_are_guests { Guests::Unknown } else { Guests::Named }
}

/// Takes a place among the sessions of guests.
pub(super) fn place(rq: &Request<'_>) -> Result<Use, Status> {
    let address = rq.connection.peer.ip().to_canonical().to_string();
    let place = rq.server().guests.take(Some(GUEST_SESSIONS), &address);
    place.ok_or_else(|| {
        rq.tell(|left_out| {
            tracing::warn!(target: "frevo::session", peer = %rq.connection.peer, left_out,
                "logon refused: there are as many guests as there may be");
        });
        Status::REQUEST_NOT_ACCEPTED
    })
}
