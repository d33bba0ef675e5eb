//! The server of a configuration, for commands that change the configuration while it runs.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use frevo_admin::client::{self, Failure as Refused};
use frevo_config::{Config, ShareSection};
use frevo_wire::fscc::fold_name;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::figures::text;
use super::socket;
use crate::exit::{Done, Exit, Failure};

/// Open files that are asked for at one time.
const OPENS: usize = 100_000;

/// A server that runs.
#[derive(Debug)]
pub(crate) struct RunningServer {
    socket: PathBuf,
    runtime: Runtime,
}

/// A file or folder that a client has open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenFile {
    id: String,
    pub(crate) user: String,
    pub(crate) share: String,
    /// The path in the share, with `\` between names.
    pub(crate) path: String,
}

#[cfg(test)]
impl OpenFile {
    pub(crate) fn new(id: &str, share: &str, user: &str, path: &str) -> Self {
        let [id, share, user, path] = [id, share, user, path].map(str::to_owned);
        Self { id, user, share, path }
    }
}

impl RunningServer {
    /// Finds the server of a configuration that serves these shares. None if none runs.
    ///
    /// # Errors
    /// When a server does not let this user ask.
    pub(crate) fn find(
        config: &Config,
        chosen: Option<&Path>,
        shares: &[&ShareSection],
    ) -> Result<Option<Self>, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Failure::failed("cannot start the event loop"))?;
        let candidates = match chosen {
            Some(socket) => vec![socket.to_owned()],
            None => socket::candidates_of(Some(config), None),
        };
        for socket in candidates {
            let asked = client::ask(&socket, "/status?parts=&latencies=no", None);
            match runtime.block_on(asked) {
                Ok(answer) => {
                    let status: Value = serde_json::from_slice(&answer).unwrap_or_default();
                    if serves(&status, shares)? {
                        return Ok(Some(Self { socket, runtime }));
                    }
                }
                Err(Refused::Unreachable(error))
                    if chosen.is_none() && error.kind() != io::ErrorKind::PermissionDenied => {}
                Err(Refused::Unreachable(error)) => {
                    let socket = socket.display();
                    let text = format!(
                        "cannot ask the server at {socket}: {error}; run this as root or as the \
                         user that runs the server"
                    );
                    return Err(Failure::new(Exit::Connect, text));
                }
                Err(Refused::Refused { why, .. } | Refused::Broken(why)) => {
                    let text = format!("the server at {} did not answer: {why}", socket.display());
                    return Err(Failure::new(Exit::Connect, text));
                }
            }
        }
        match chosen {
            Some(socket) => {
                let text = format!("the server at {} does not serve the shares", socket.display());
                Err(Failure::new(Exit::Failed, text))
            }
            None => Ok(None),
        }
    }

    /// User and group that the server runs as.
    pub(crate) fn owner(&self) -> Option<(u32, u32)> {
        let socket = std::fs::metadata(&self.socket).ok()?;
        Some((socket.uid(), socket.gid()))
    }

    fn ask(&self, path: &str, body: Option<&str>) -> Result<Value, Refused> {
        let answer = self.runtime.block_on(client::ask(&self.socket, path, body))?;
        serde_json::from_slice(&answer).map_err(|error| Refused::Broken(error.to_string()))
    }

    fn failure(&self, tried: &str, refused: Refused) -> Failure {
        let why = match refused {
            Refused::Unreachable(error) => error.to_string(),
            Refused::Refused { why, .. } | Refused::Broken(why) => why,
        };
        let text = format!("the server at {} could not {tried}: {why}", self.socket.display());
        Failure::new(Exit::Connect, text)
    }

    /// Makes sure that the server serves these shares still.
    ///
    /// # Errors
    /// When it does not, or does not answer.
    pub(crate) fn check_serves(&self, shares: &[&ShareSection]) -> Done {
        let status = self.ask("/status?parts=&latencies=no", None);
        let status = status.map_err(|refused| self.failure("tell what it serves", refused))?;
        if serves(&status, shares)? {
            return Ok(());
        }
        let text = format!("the server at {} no longer serves the shares", self.socket.display());
        Err(Failure::new(Exit::Failed, text))
    }

    /// Has the server read its configuration again.
    pub(crate) fn reload(&self) -> Done {
        let done = self.ask("/reload", Some(""));
        done.map(drop).map_err(|refused| self.failure("reload its configuration", refused))
    }

    /// Files and folders that clients have open.
    pub(crate) fn opens(&self) -> Result<Vec<OpenFile>, Failure> {
        let path = format!("/status?parts=opens&latencies=no&limit={OPENS}");
        let status =
            self.ask(&path, None).map_err(|refused| self.failure("list open files", refused))?;
        let opens = &status["opens"];
        if opens["more"].as_u64() != Some(0) {
            let text = format!("clients have more than {OPENS} files open; try again later");
            return Err(Failure::new(Exit::Failed, text));
        }
        let rows = opens["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
        let rows = rows.iter().filter(|row| text(row, "kind") != "pipe");
        let of = |row| OpenFile {
            id: text(row, "id"),
            user: text(row, "user"),
            share: text(row, "share"),
            path: text(row, "path"),
        };
        Ok(rows.map(of).collect())
    }

    /// Closes an open file. Nothing is to be done if it has been closed meanwhile.
    pub(crate) fn close(&self, file: &OpenFile) -> Done {
        let body = json!({ "kind": "open", "name": file.id }).to_string();
        match self.ask("/kick", Some(&body)) {
            Ok(_) | Err(Refused::Refused { status: 404, .. }) => Ok(()),
            Err(refused) => Err(self.failure("close an open file", refused)),
        }
    }
}

/// True if a server serves these shares. Otherwise it is one of another configuration.
///
/// # Errors
/// When the server has a share of them that another node of its cluster serves.
fn serves(status: &Value, shares: &[&ShareSection]) -> Result<bool, Failure> {
    let rows = status["shares"]["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    for share in shares {
        let name = share.name.get_ref().as_str();
        let is_it = |row: &&Value| fold_name(&text(row, "name")) == fold_name(name);
        let Some(row) = rows.iter().find(is_it) else { return Ok(false) };
        if share.cluster && text(row, "life") != "owned" {
            let text = format!(
                "another node of the cluster serves the share {name}; frevo cluster status tells \
                 which one: run the command there, or move the share here first"
            );
            return Err(Failure::new(Exit::Failed, text));
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_its_shares() {
        let config = "[cluster]\nname = \"c\"\nnode = \"n\"\nendpoints = [\"http://127.0.0.1:1\"]\n\
            [[share]]\nname = \"Files\"\npath = \"/srv\"\n\
            [[share]]\nname = \"red\"\npath = \"/red\"\ncluster = true\n";
        let shares = Config::parse(config).unwrap().shares;
        let (files, red) = (&shares[0], &shares[1]);
        let status = |life: &str| {
            json!({ "shares": { "rows": [
                { "name": "FILES", "life": "owned" }, { "name": "red", "life": life },
            ] } })
        };
        assert!(serves(&status("owned"), &[files, red]).unwrap());
        assert!(serves(&status("absent"), &[files]).unwrap());
        let failure = serves(&status("absent"), &[files, red]).unwrap_err();
        assert!(failure.message.contains("another node"), "{failure}");
        let other = json!({ "shares": { "rows": [{ "name": "files", "life": "owned" }] } });
        assert!(!serves(&other, &[files, red]).unwrap());
    }
}
