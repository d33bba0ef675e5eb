//! Passwords that users change over SAMR, and the authentication on the pipe that some clients
//! insist on for that.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use frevo_auth::limits::MAX_NEW_PASSWORD_UNITS;
use frevo_auth::ntlm::Sealing;
use frevo_auth::password_change::EncryptedChange;
use frevo_auth::{Acceptor, AcceptorConfig, NotChanged, NtHash, Step, Zeroizing};
use frevo_crypto::SealedPassword;
use frevo_net::file_io::run_blocking;
use frevo_rpc::samr::PasswordChange;
use frevo_rpc::{Endpoint, PipeLogon, PipeSecurity, Question};
use frevo_wire::Status;
use frevo_wire::dtyp::Guid;
use frevo_wire::fscc::eq_ignore_case;

use crate::access::principals::SharedAccounts;
use crate::access::throttle::Attempt;
use crate::base::limits::PASSWORD_DERIVATIONS;
use crate::base::pools::permits::UserPermits;
use crate::command::audited;
use crate::command::request::Request;
use crate::objects::open::Open;
use crate::objects::session::Identity;

/// The server's end of NTLM on a pipe. Only the session's own user may authenticate.
pub(super) struct Ends {
    pub(super) acceptor: Acceptor,
    pub(super) accounts: SharedAccounts,
    /// The time as FILETIME ticks.
    pub(super) now: u64,
    /// The user who is logged on to the session.
    pub(super) user: String,
    pub(super) sealing: Option<Sealing>,
}

impl Ends {
    /// Begins an exchange for `user` with the challenge of a server called `name`.
    pub(super) fn new(
        name: &str,
        user: &str,
        accounts: SharedAccounts,
        now: u64,
        challenge: [u8; 8],
    ) -> Self {
        let config = Arc::new(AcceptorConfig::standalone(name));
        let acceptor = Acceptor::new(config, challenge);
        Self { acceptor, accounts, now, user: user.to_owned(), sealing: None }
    }
}

impl PipeSecurity for Ends {
    fn challenge(&mut self, token: &[u8]) -> Option<Vec<u8>> {
        match self.acceptor.step(token, self.now, &*self.accounts) {
            Ok(Step::Continue(answer)) => Some(answer),
            _ => None,
        }
    }

    fn authenticate(&mut self, token: &[u8]) -> PipeLogon {
        match self.acceptor.step(token, self.now, &*self.accounts) {
            Ok(Step::Done(done)) => {
                self.sealing = done.sealing();
                let account = done.identity.user;
                let is_right = eq_ignore_case(&account, &self.user) && self.sealing.is_some();
                PipeLogon { account, is_right }
            }
            Ok(Step::Continue(_) | Step::Retry(..) | Step::Ask(_)) => {
                PipeLogon { account: self.user.clone(), is_right: false }
            }
            Err(refusal) => PipeLogon { account: refusal.account, is_right: false },
        }
    }

    fn seal(&mut self, pdu: &mut [u8], sealed: Range<usize>) -> Option<[u8; 16]> {
        Some(self.sealing.as_mut()?.seal(pdu, sealed))
    }

    fn unseal(&mut self, pdu: &mut [u8], sealed: Range<usize>, signature: &[u8]) -> bool {
        self.sealing.as_mut().is_some_and(|sealing| sealing.unseal(pdu, sealed, signature))
    }
}

impl fmt::Debug for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ends").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Answers the step of a pipe that waits for the server, if there is one.
pub(super) async fn answer(
    rq: &Request<'_>,
    open: &Arc<Open>,
    identity: &Identity,
) -> Result<(), Status> {
    let (question, is_sealed) = {
        let mut pipe = open.pipe()?.lock();
        let Some(endpoint) = &mut pipe.endpoint else { return Ok(()) };
        (endpoint.question(), endpoint.is_sealed())
    };
    let Some(question) = question else { return Ok(()) };
    let answered: Box<dyn FnOnce(&mut Endpoint) + Send> = match question {
        Question::Logon(logon) => {
            // As every logon, a right one too waits its turn, and is refused after many wrong ones.
            let counts = heed(rq, &logon.account, logon.is_right).await;
            let is_accepted = counts && logon.is_right;
            Box::new(move |endpoint| endpoint.answer_logon(is_accepted))
        }
        Question::Change(change) => {
            let status = change_password(rq, identity, is_sealed, change).await;
            audited::password_changed(rq, identity, status);
            Box::new(move |endpoint| endpoint.answer_change(status))
        }
    };
    let mut pipe = open.pipe()?.lock();
    let mut endpoint = pipe.endpoint.take().ok_or(Status::PIPE_DISCONNECTED)?;
    answered(&mut endpoint);
    pipe.put_back(endpoint, Ok(()))
}

/// Waits as long as the throttle says; false when the outcome does not count.
async fn heed(rq: &Request<'_>, account: &str, success: bool) -> bool {
    let client = rq.connection.negotiated().map_or_else(|_| Guid::default(), |n| n.client_guid);
    let attempt = Attempt { address: rq.connection.peer.ip(), client, account, success };
    rq.server().throttle.heed(attempt).await
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
            // Kept by the call, which goes on when its client has gone.
            let derived = run_blocking(move || {
                let _turn = turn;
                sealed.open(old.as_bytes())
            });
            let new = derived.await.ok().flatten();
            // As many units as the other call takes.
            new.filter(|new| new.encode_utf16().count() <= MAX_NEW_PASSWORD_UNITS)
        }
    }
}

/// MS-SAMR 3.1.5.10.3 and 3.1.5.10.4. Deviation: users change their own passwords only, and only
/// where nobody else can read the call: it is encrypted with the hash of the old password alone.
async fn change_password(
    rq: &Request<'_>,
    identity: &Identity,
    is_sealed: bool,
    change: PasswordChange,
) -> Status {
    if !(rq.encrypted || is_sealed) {
        return Status::ACCESS_DENIED;
    }
    let accounts = rq.server().accounts();
    let own = accounts
        .account(change.user(), "")
        .filter(|account| identity.is_local && eq_ignore_case(&account.name, &identity.user));
    let Some(account) = own else { return Status::ACCESS_DENIED };
    let new = opened(&DERIVING, &identity.user, change, account.nt_hash.clone()).await;
    let counts = heed(rq, &account.name, new.is_some()).await;
    let Some(new) = new.filter(|_| counts) else { return Status::WRONG_PASSWORD };
    let user = account.name.clone();
    let store = move || accounts.change_password(&user, &account.nt_hash, &new);
    let why = match rq.beside_core(store).await {
        Ok(Ok(())) => {
            tracing::info!(target: "frevo::session", user = %identity.user, peer = %rq.connection.peer,
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
