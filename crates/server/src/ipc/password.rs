//! Passwords that users change over SAMR.

use std::sync::{Arc, LazyLock};

use frevo_auth::limits::MAX_NEW_PASSWORD_UNITS;
use frevo_auth::password_change::EncryptedChange;
use frevo_auth::{NotChanged, NtHash, Zeroizing};
use frevo_crypto::SealedPassword;
use frevo_net::file_io::run_blocking;
use frevo_rpc::samr::PasswordChange;
use frevo_rpc::{Answer, AuthLevel};
use frevo_wire::Status;
use frevo_wire::fscc::eq_ignore_case;
use frevo_wire::ndr::NdrWriter;

use super::peer::Peer;
use crate::audit::{Event, Kind};
use crate::base::limits::PASSWORD_DERIVATIONS;
use crate::base::pools::permits::UserPermits;
use crate::objects::session::Identity;

/// Answers a change of the caller's own password, a call that was protected at `level`.
pub(super) async fn answer(
    peer: &Peer,
    identity: &Arc<Identity>,
    level: AuthLevel,
    change: PasswordChange,
) -> Answer {
    let status = change_password(peer, identity, level >= AuthLevel::PRIVACY, change).await;
    let source = peer.source();
    peer.server.audit.emit_limited(source.peer.ip(), || {
        let by = Some(Arc::clone(identity));
        Event::new(Kind::Password).status(status).from(source).by(by)
    });
    let mut w = NdrWriter::new();
    w.u32(status.0);
    Ok(w.into_stub())
}

/// Limits how many keys are derived from passwords at one time: a client decides how long one
/// takes. Each user has one at most, so that others have their turn.
static DERIVING: LazyLock<UserPermits> =
    LazyLock::new(|| UserPermits::new(PASSWORD_DERIVATIONS, 1));

/// Returns the new password if its sender, who is logged on as `user`, knows the old one. Keys are
/// derived with a permit of `deriving`.
async fn opened(
    deriving: &UserPermits,
    user: &str,
    change: PasswordChange,
    old: NtHash,
) -> Option<Zeroizing<String>> {
    match change {
        PasswordChange::User2(change) => {
            EncryptedChange { password: change.password, proof: change.proof }.open(&old)
        }
        PasswordChange::User4(change) => {
            let sealed = SealedPassword {
                auth_data: change.auth_data,
                salt: change.salt,
                cipher: change.cipher,
                iterations: change.iterations,
            };
            let turn = deriving.take(user).await.ok()?;
            // The blocking call owns the turn (a permit), because the call runs on even if the
            // client has disconnected.
            let derived = run_blocking(move || {
                let _turn = turn;
                sealed.open(old.as_bytes())
            });
            let new = derived.await.ok().flatten();
            // The length is limited as in SamrUnicodeChangePasswordUser2, the other request that
            // changes a password.
            new.filter(|new| new.encode_utf16().count() <= MAX_NEW_PASSWORD_UNITS)
        }
    }
}

/// MS-SAMR 3.1.5.10.3 and 3.1.5.10.4. Deviation: users change their own passwords only, and only
/// where nobody else can read the call: it is encrypted with the hash of the old password alone.
async fn change_password(
    peer: &Peer,
    identity: &Identity,
    is_sealed: bool,
    change: PasswordChange,
) -> Status {
    if !(peer.is_sealed || is_sealed) {
        return Status::ACCESS_DENIED;
    }
    let accounts = peer.server.accounts();
    let own = accounts
        .account(change.user(), "")
        .filter(|account| identity.is_local && eq_ignore_case(&account.name, &identity.user));
    let Some(account) = own else { return Status::ACCESS_DENIED };
    let new = opened(&DERIVING, &identity.user, change, account.nt_hash.clone()).await;
    let counts = peer.heed(&account.name, new.is_some()).await;
    let Some(new) = new.filter(|_| counts) else { return Status::WRONG_PASSWORD };
    let user = account.name.clone();
    // A reload while the attempt waited has put other accounts in their place.
    let accounts = peer.server.accounts();
    let store = move || accounts.change_password(&user, &account.nt_hash, &new);
    let why = match peer.beside_core(&identity.user, store).await {
        Ok(Ok(())) => {
            tracing::info!(target: "frevo::session", user = %identity.user, peer = %peer.address,
                "the user has changed the password");
            return Status::SUCCESS;
        }
        Ok(Err(why)) => why,
        Err(_) => NotChanged::Failed(String::from("internal error")),
    };
    match why {
        NotChanged::NotKept => {
            tracing::warn!(target: "frevo::session", user = %identity.user,
                "the password was not changed: it is kept outside of the account file");
            Status::ACCESS_DENIED
        }
        NotChanged::Outdated => Status::WRONG_PASSWORD,
        NotChanged::Unusable(_) => Status::PASSWORD_RESTRICTION,
        NotChanged::Failed(why) => {
            tracing::error!(target: "frevo::session", user = %identity.user, %why,
                "the password was not changed: the account file cannot be written");
            Status::UNSUCCESSFUL
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use frevo_rpc::samr::ChangePasswordAes;
    use tokio::time::timeout;

    use super::*;

    /// A client that asks and goes away, again and again, must not have all cores derive keys.
    #[tokio::test]
    async fn a_derivation_keeps_its_permit_though_the_client_has_gone() {
        let permits = UserPermits::new(PASSWORD_DERIVATIONS, 1);
        let change = || {
            PasswordChange::User4(ChangePasswordAes {
                user: String::from("ann"),
                auth_data: [0; 64],
                salt: [0; 16],
                cipher: Vec::new(),
                iterations: 1_000_000,
            })
        };
        let old = || NtHash::from_password("old");
        for gone in 0..3 {
            let asked = opened(&permits, "ann", change(), old());
            assert!(timeout(Duration::from_millis(1), asked).await.is_err(), "{gone} is answered");
            assert_eq!(permits.free(), 0, "the derivation of client {gone} goes on");
        }
        while permits.free() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
