//! Logons by Kerberos: whose tickets are used, and when NTLM is used instead.

use std::cell::RefCell;

use frevo_client::{Credentials, Kerberos, KerberosError};

use super::connection_options::{Connection, KerberosUse};
use super::location::Url;
use super::saved;
use crate::console::tell;
use crate::exit::{Exit, Failure};
use crate::passwords;

thread_local! {
    /// The user whose tickets this command uses; they are shared by all of its sessions.
    static KEPT: RefCell<Option<Kerberos>> = const { RefCell::new(None) };
    /// Servers for which NTLM is used in place of Kerberos.
    static WITHOUT: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// The user of a logon by Kerberos.
struct User {
    kerberos: Kerberos,
    /// The same user for a logon by NTLM, if the password is given.
    ntlm: Option<Credentials>,
}

impl Connection {
    /// The credentials of a logon by Kerberos; `None` for one by NTLM.
    pub(super) async fn tickets(&self, url: &Url) -> Result<Option<Credentials>, Failure> {
        let refused = |error: KerberosError| {
            let exit = if error.is_unreachable() { Exit::Connect } else { Exit::Auth };
            Failure::new(exit, error.to_string()).of("connect to", url)
        };
        let (user, is_required) = match self.kerberos_use(url)? {
            KerberosUse::Off => return Ok(None),
            KerberosUse::Preferred if is_without(url) => return Ok(None),
            how => (self.user_with_tickets(url), how == KerberosUse::Required),
        };
        let found = match user {
            Ok(user) => user.kerberos.prepare(&url.server.host).await.map(|()| user),
            Err(error) => Err(error),
        };
        match found {
            Ok(User { kerberos, ntlm: Some(ntlm) }) if !is_required => {
                Ok(Some(ntlm.prefer_kerberos(kerberos)))
            }
            Ok(User { kerberos, .. }) => Ok(Some(Credentials::kerberos(kerberos))),
            Err(error) if is_required => Err(refused(error)),
            Err(error) => {
                let host = &url.server.host;
                tell(format_args!(
                    "Kerberos is not used for {host}: {error}; NTLM is used instead"
                ));
                note_without(url);
                Ok(None)
            }
        }
    }

    /// The use of Kerberos: as the options say, else where there are tickets and nothing says that
    /// another user is meant.
    fn kerberos_use(&self, url: &Url) -> Result<KerberosUse, Failure> {
        match (self.kerberos, &self.keytab) {
            (Some(KerberosUse::Off), Some(_)) => {
                let text = "--keytab is for Kerberos; leave out --kerberos off";
                Err(Failure::new(Exit::Usage, text))
            }
            (Some(how), _) => Ok(how),
            (None, Some(_)) => Ok(KerberosUse::Required),
            (None, None) if self.gives_user(url)? => Ok(KerberosUse::Off),
            (None, None) => match Kerberos::from_cache() {
                Ok(kerberos) if kerberos.has_ticket() => Ok(KerberosUse::Preferred),
                Ok(kerberos) if !is_without(url) => {
                    let (user, realm) = (kerberos.user(), kerberos.realm());
                    tell(format_args!(
                        "{user}@{realm} has no valid Kerberos ticket (run kinit); NTLM is used instead"
                    ));
                    note_without(url);
                    Ok(KerberosUse::Off)
                }
                _ => Ok(KerberosUse::Off),
            },
        }
    }

    /// True if a user or a password is given for `url`.
    fn gives_user(&self, url: &Url) -> Result<bool, Failure> {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_given = self.user.is_some()
            || url.user.is_some()
            || self.has_password_option()
            || is_set("FREVO_USER")
            || saved::find(url, None)?.is_some();
        // `frevo login` and `frevo passwd` have asked for the password already, so it is kept here.
        let is_kept = |user: String| self.kept_password(&user, url).is_some();
        Ok(is_given || self.user_of(url).is_ok_and(is_kept))
    }

    /// True if the password is given without a question.
    fn has_password_option(&self) -> bool {
        self.credentials.is_some()
            || self.password_stdin
            || self.nt_hash
            || passwords::is_in_environment()
    }

    /// The user whose tickets are used: of the keytab, of the password, or of the ticket cache.
    fn user_with_tickets(&self, url: &Url) -> Result<User, KerberosError> {
        let kept =
            |kerberos: &Kerberos| KEPT.with_borrow_mut(|kept| *kept = Some(kerberos.clone()));
        let named = self.user.clone().or_else(|| url.user.clone());
        let named =
            named.or_else(|| std::env::var("FREVO_USER").ok().filter(|user| !user.is_empty()));
        if let Some(keytab) = &self.keytab {
            let known = KEPT.with_borrow(Option::clone);
            let kerberos = match known {
                Some(kerberos) => kerberos,
                None => Kerberos::from_keytab(keytab, named.as_deref())?,
            };
            kept(&kerberos);
            return Ok(User { kerberos, ntlm: None });
        }
        if self.has_password_option()
            && let Ok(ntlm) = self.ntlm(url)
        {
            return Ok(User { kerberos: ntlm.to_kerberos()?, ntlm: Some(ntlm) });
        }
        let kerberos = match KEPT.with_borrow(Option::clone) {
            Some(kerberos) => kerberos,
            None => Kerberos::from_cache()?,
        };
        kerberos.check_is_of(named.as_deref())?;
        kept(&kerberos);
        Ok(User { kerberos, ntlm: None })
    }
}

/// True if NTLM was used for this server before.
fn is_without(url: &Url) -> bool {
    WITHOUT.with_borrow(|hosts| hosts.contains(&url.server.host))
}

fn note_without(url: &Url) {
    WITHOUT.with_borrow_mut(|hosts| hosts.push(url.server.host.clone()));
}
