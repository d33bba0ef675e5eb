//! `passwd`: the user's own password on a server.

use super::connection_options::Connection;
use super::location::Url;
use super::logon::failed;
use crate::console::tell;
use crate::exit::Done;
use crate::passwords::{self, PasswordFrom};

pub(crate) async fn passwd(connection: &Connection, url: &Url) -> Done {
    let user = connection.user_of(url)?;
    let old = match connection.given_password(&user, url)? {
        Some(old) => old,
        None => passwords::prompt(&format!("Old password of {user} on {}: ", url.server.host))?,
    };
    connection.keep_password(&user, url, old.clone());
    // The logon checks the old password before the user is asked for a new one.
    let session = connection.log_on(url).await?;
    let from = PasswordFrom { password_stdin: connection.password_stdin, password_file: None };
    let new = passwords::ask(&from, &user)?;
    session.change_password(bare(&user), &old, &new).await.map_err(failed)?;
    tell(format_args!("the password of {user} on {} is changed", url.server.host));
    Ok(())
}

/// The name of the account, without its domain.
fn bare(user: &str) -> &str {
    let name = user.split_once('\\').map_or(user, |(_, name)| name);
    name.split_once('@').map_or(name, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_named_without_its_domain() {
        for user in ["ann", r"CORP\ann", "ann@example.com"] {
            assert_eq!(bare(user), "ann");
        }
    }
}
