//! The directory of accounts: asked for the account of a logon that begins, and for those of sessions that
//! go on.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;

use frevo_auth::{Acceptor, Done, Reason, Refusal};

use crate::access::account_directory::{AccountDirectory, Learned};
use crate::access::principals::SharedAccounts;
use crate::objects::server::ServerState;

/// Has the directory asked for the account by which a token will be judged. None if there is nothing to ask:
/// the message is refused for its form, or the account is known.
///
/// # Errors
/// The refusal of a logon about whose account the directory does not answer. It is no guess.
pub(crate) fn before_proof<'a>(
    server: &'a Arc<ServerState>,
    acceptor: &Acceptor,
    token: &[u8],
    accounts: &SharedAccounts,
    from: IpAddr,
) -> Option<Pin<Box<impl Future<Output = Result<(), Refusal>> + use<'a>>>> {
    let directory = server.account_directory.get()?;
    let claim = acceptor.claim(token)?;
    let name = accounts.asks_directory(&claim.user, &claim.domain)?;
    Some(Box::pin(async move {
        ask(server, directory, &name, from).await.map_err(|why| Refusal {
            user: claim.user,
            domain: claim.domain,
            ..Refusal::new(Reason::DirectorySilent(why))
        })
    }))
}

/// Has the directory asked for the account of a user whom a KDC has authenticated.
///
/// # Errors
/// The refusal of a logon about whose account the directory does not answer, as with a password.
pub(crate) fn before_naming<'a>(
    server: &'a Arc<ServerState>,
    done: &Done,
    from: IpAddr,
) -> Option<Pin<Box<impl Future<Output = Result<(), Refusal>> + use<'a>>>> {
    let directory = server.account_directory.get()?;
    let by_kdc = done.identity.kerberos.as_ref()?;
    let is_account = server.settings().realms.contains(&by_kdc.principal.realm);
    let [name] = by_kdc.principal.components.as_slice() else { return None };
    let name = server.accounts().asks_directory(name, "").filter(|_| is_account)?;
    let (user, domain) = (done.identity.user.clone(), done.identity.domain.clone());
    Some(Box::pin(async move {
        ask(server, directory, &name, from).await.map_err(|why| Refusal {
            user,
            domain,
            ..Refusal::new(Reason::DirectorySilent(why))
        })
    }))
}

/// The refusal of a client that has gone meanwhile.
pub(crate) fn gone() -> Refusal {
    Refusal::new(Reason::DirectorySilent(String::from("the client has gone")))
}

async fn ask(
    server: &Arc<ServerState>,
    directory: &AccountDirectory,
    name: &str,
    from: IpAddr,
) -> Result<(), String> {
    match directory.know(name, from).await? {
        Learned::Same => {}
        Learned::Changed => server.review_account(name, false),
        Learned::Replaced => server.review_account(name, true),
    }
    Ok(())
}

impl ServerState {
    /// Has an account asked for again at its next logon, for its password was wrong.
    pub(crate) fn doubt(&self, account: &str) {
        if let Some(directory) = self.account_directory.get() {
            directory.doubt(account);
        }
    }

    /// Asks the directory for the accounts of open sessions again, whenever what is known of them is not
    /// fresh any more. Never ends.
    pub async fn follow_directory(self: Arc<Self>) {
        let Some(directory) = self.account_directory.get() else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(directory.fresh()).await;
            let accounts = self.accounts();
            let users = self.sessions().into_iter().filter_map(|session| session.identity());
            let users = users.filter(|identity| identity.is_local);
            let mut names: Vec<String> =
                users.filter_map(|identity| accounts.asks_directory(&identity.user, "")).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                // A directory that is away ends no session, and a fault about one account keeps no other from
                // being asked for.
                let _ = ask(&self, directory, &name, Ipv4Addr::LOCALHOST.into()).await;
            }
        }
    }
}
