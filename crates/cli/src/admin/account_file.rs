//! The servers of this machine that use an account file, after it has changed.

use std::path::Path;

use frevo_admin::client::{self, Failure as Refused};
use frevo_config::Config;
use serde_json::{Value, json};

use super::figures::number;
use super::socket;
use crate::exit::{Exit, Failure};

/// Has the server that uses the account file read it again. Returns the number of sessions that ended by
/// that; None without such a server: the next one reads the file when it starts.
///
/// # Errors
/// When a server is there that cannot be told: it goes on with the accounts from before.
pub(crate) fn tell_server(file: &Path, config: Option<&Config>) -> Result<Option<u64>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed("cannot start the event loop"))?;
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let body = json!({ "file": file }).to_string();
    for socket in socket::candidates_of(config, file.parent()) {
        match runtime.block_on(client::ask(&socket, "/accounts", Some(&body))) {
            Ok(answer) => {
                let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
                return Ok(Some(number(&answer, "sessions")));
            }
            // No server with this state directory is running, so no server needs to learn of the
            // change. Missing rights are not the reason, because a user who may change the account
            // file may also use the server's socket.
            Err(Refused::Refused { status: 404, .. } | Refused::Unreachable(_)) => {}
            Err(Refused::Refused { why, .. } | Refused::Broken(why)) => {
                return Err(Failure::new(
                    Exit::Connect,
                    format!(
                        "{} was changed, but the server at {} goes on with the accounts from \
                         before: {why}; to apply the change: systemctl reload frevo",
                        file.display(),
                        socket.display()
                    ),
                ));
            }
        }
    }
    Ok(None)
}
