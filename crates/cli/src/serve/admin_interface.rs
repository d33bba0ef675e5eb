//! The admin interface of `frevo serve`.

use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frevo_admin::{Admin, ClientLevel, Levels, Listening, LogLevels, Tls, Token, Tokens};
use frevo_server::Server;

use super::config_reloads::NotInForce;
use super::loaded::Loaded;
use super::managing::Files;
use super::plan::Plan;
use super::quotas::Quotas;
use super::snapshots::Snapshots;
use super::{account_reloads, cluster, config_reloads};
use crate::arguments::Serve;
use crate::exit::{Exit, Failure};
use crate::logging::Logging;
use crate::{secret_file, state};

/// The interface before the server is made: its sockets and its secret.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    listening: Listening,
    tokens: Tokens,
}

/// The interface after its start. It goes on until the process ends.
pub(super) struct Started {
    pub(super) wishes: Wishes,
    /// The folders whose quotas it shows.
    pub(super) quotas: Quotas,
    /// The part of the configuration that it shows as not in force.
    pub(super) not_in_force: NotInForce,
    /// The file of the Unix socket; None without one.
    _socket: Option<SocketFile>,
}

/// The interface's ends: it asks for files to be read again.
pub(super) struct Asking {
    accounts: account_reloads::Asking,
    configuration: config_reloads::Asking,
}

/// The parts of the process that the interface shows beside the server.
#[derive(Clone, Copy)]
pub(super) struct Shown<'a> {
    pub(super) arguments: &'a Serve,
    pub(super) cluster: Option<&'a cluster::Running>,
    pub(super) snapshots: Option<&'a Snapshots>,
}

/// The ends of the thread that reloads.
pub(super) struct Wishes {
    pub(super) accounts: account_reloads::AccountReloads,
    pub(super) configuration: config_reloads::ConfigReloads,
}

/// Returns both ends of the wishes for reloads.
fn wishes(not_in_force: NotInForce) -> (Asking, Wishes) {
    let (accounts, asked_accounts) = account_reloads::channel();
    let (configuration, asked_configuration) = config_reloads::channel(not_in_force);
    let wishes = Wishes { accounts: asked_accounts, configuration: asked_configuration };
    (Asking { accounts, configuration }, wishes)
}

/// The log of this process.
struct ProcessLog(Logging);

impl LogLevels for ProcessLog {
    fn set(&self, filter: &str, client: Option<IpAddr>) -> Result<Levels, String> {
        let done = match client {
            Some(client) => {
                self.0.set_client_level(client, Some(filter).filter(|filter| !filter.is_empty()))
            }
            None => self.0.set_level(Some(&combined(&self.0.levels().0, filter))),
        };
        done.map_err(|failure| failure.to_string())?;
        Ok(self.levels())
    }

    fn levels(&self) -> Levels {
        let (filter, client) = self.0.levels();
        let client = client.map(|(address, filter)| ClientLevel { address, filter });
        Levels { filter, client }
    }
}

/// A filter of which parts are changed: `frevo::tree=debug` leaves all other targets as they are,
/// a bare level replaces all.
fn combined(before: &str, change: &str) -> String {
    let is_bare = change.split(',').any(|directive| !directive.contains(['=', '[', ':']));
    if is_bare || before.is_empty() { change.to_owned() } else { format!("{before},{change}") }
}

/// The socket of a plan: the configured one, or `admin.sock` in the runtime directory that
/// systemd made, or in the state directory. None for a run without either.
pub(super) fn socket_of(plan: &Plan) -> Option<PathBuf> {
    if plan.config.admin.enabled == Some(false) {
        return None;
    }
    if let Some(path) = &plan.config.admin.socket {
        return Some(path.clone());
    }
    // RUNTIME_DIRECTORY may contain several directories, separated by colons. The first one is
    // used.
    let runtime = std::env::var("RUNTIME_DIRECTORY").ok();
    let runtime = runtime.as_deref().and_then(|names| names.split(':').next());
    match runtime {
        Some(folder) => Some(PathBuf::from(folder).join(state::ADMIN_SOCKET)),
        None if plan.has_state => Some(state::dir_of(&plan.config).join(state::ADMIN_SOCKET)),
        None => state::session_socket(),
    }
}

/// Opens the sockets, before the process is confined.
pub(super) fn prepare(plan: &Plan) -> Result<Prepared, Failure> {
    let admin = &plan.config.admin;
    let mut prepared = Prepared::default();
    if admin.enabled == Some(false) {
        return Ok(prepared);
    }
    if let Some(path) = socket_of(plan)
        && let Err(error) = prepared.listening.unix(&path)
    {
        let shown = path.display();
        // The admin socket cannot be opened. That is an error only if the configuration names it.
        if admin.socket.is_some() {
            let why = format!("cannot open the admin socket {shown}: {error}");
            return Err(Failure::new(Exit::Failed, why));
        }
        let is_occupied = error.kind() == io::ErrorKind::AddrInUse;
        let hint = if is_occupied {
            "set [admin] socket to give this server one of its own"
        } else {
            "set [admin] socket to a path in a folder that this user can write to"
        };
        tracing::warn!(target: "frevo::admin", socket = %shown, %error,
            "the server has no admin socket, so that frevo status does not find it; {hint}");
    }
    if let Some(address) = admin.listen {
        prepared.tokens = read_tokens(plan)?;
        let opened = prepared.listening.tcp(address, read_certificate(plan)?);
        opened.map_err(Failure::failed(format!("[admin] cannot listen on {address}")))?;
    }
    Ok(prepared)
}

fn read_tokens(plan: &Plan) -> Result<Tokens, Failure> {
    let admin = &plan.config.admin;
    let read = |path: &Option<PathBuf>| path.as_deref().map(read_token).transpose();
    let (look, manage) = (read(&admin.token_file)?, read(&admin.manage_token_file)?);
    if let (Some(look), Some(manage)) = (&look, &manage)
        && look.is_same(manage)
    {
        let text = "token_file and manage_token_file have one token; the second one may do more, so \
                    make another one for it";
        return Err(Failure::new(Exit::Auth, text));
    }
    Ok(Tokens { look, manage })
}

fn read_token(path: &Path) -> Result<Token, Failure> {
    let shown = path.display();
    let text = secret_file::read(path)?.ok_or_else(|| {
        let how = "make it, for instance: head -c 24 /dev/urandom | base64 > FILE; chmod 600 FILE";
        Failure::new(Exit::Auth, format!("there is no token file {shown}; {how}"))
    })?;
    Token::new(&text).map_err(|why| Failure::new(Exit::Auth, format!("{shown}: {why}")))
}

/// The certificate of TLS, if one is named.
fn read_certificate(plan: &Plan) -> Result<Option<Tls>, Failure> {
    let admin = &plan.config.admin;
    let (Some(certificate), Some(key)) = (&admin.certificate, &admin.key) else { return Ok(None) };
    let shown = certificate.display();
    let chain =
        std::fs::read(certificate).map_err(Failure::failed(format!("cannot read {shown}")))?;
    let secret = secret_file::read_bytes(key)?.ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("there is no key {}", key.display()))
    })?;
    let tls = Tls::from_pem(&chain, &secret);
    tls.map(Some).map_err(|why| Failure::new(Exit::Config, format!("{shown}: {why}")))
}

impl Prepared {
    /// Starts the thread of the interface, if there is a socket.
    pub(super) fn start(
        self,
        server: &Server,
        logging: &Logging,
        shown: Shown<'_>,
        loaded: &Loaded,
    ) -> Result<Started, Failure> {
        let Self { listening, tokens } = self;
        let not_in_force = NotInForce::default();
        not_in_force.note(loaded.not_served.clone());
        let (asking, wishes) = wishes(not_in_force.clone());
        let quotas = Quotas::of(&loaded.plan.config);
        if listening.path().is_none() && listening.address().is_none() {
            return Ok(Started { wishes, quotas, not_in_force, _socket: None });
        }
        let file = listening.path().and_then(SocketFile::new);
        if let Some(path) = listening.path() {
            tracing::debug!(target: "frevo::admin", socket = %path.display(), "the admin socket is open");
        }
        if let Some(address) = listening.address() {
            tracing::info!(target: "frevo::admin", %address, "admin interface on TCP");
        }
        let levels = Arc::new(ProcessLog(logging.clone()));
        let (accounts, configuration) = (Arc::new(asking.accounts), Arc::new(asking.configuration));
        let Shown { arguments, cluster, snapshots } = shown;
        let has_state = loaded.plan.has_state;
        let (asked, reloads) = (Arc::clone(&accounts), Arc::clone(&configuration));
        let managing = Files::new(arguments, has_state, asked, reloads)?;
        let cluster = cluster.map(cluster::Running::for_admin);
        let snapshots = snapshots.map(Snapshots::for_admin);
        let server = server.clone();
        let known = Some(Arc::new(quotas.clone()) as _);
        let admin = Admin {
            server,
            levels,
            accounts,
            configuration,
            cluster,
            snapshots,
            quotas: known,
            managing: Some(Arc::new(managing)),
            changes_passwords: loaded.plan.config.admin.self_service == Some(true),
            tokens,
        };
        admin.start(listening).map_err(Failure::failed("cannot start the admin interface"))?;
        Ok(Started { wishes, quotas, not_in_force, _socket: file })
    }
}

/// The file of a Unix socket, which goes with a clean stop.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// The device and inode numbers of the socket.
    identity: (u64, u64),
}

impl SocketFile {
    fn new(path: &Path) -> Option<Self> {
        Some(Self { path: path.to_owned(), identity: identity_of(path)? })
    }
}

impl Drop for SocketFile {
    /// Removes the file, unless another server has put one of its own there.
    fn drop(&mut self) {
        if identity_of(&self.path) != Some(self.identity) {
            return;
        }
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(target: "frevo::admin", socket = %self.path.display(), %error,
                "the file of the admin socket stays; the next start replaces it");
        }
    }
}

fn identity_of(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::combined;

    #[test]
    fn a_target_is_added_and_a_level_replaces() {
        assert_eq!(combined("info", "frevo::tree=debug"), "info,frevo::tree=debug");
        assert_eq!(combined("info,frevo::tree=debug", "warn"), "warn");
        assert_eq!(combined("info", "warn,frevo::tree=debug"), "warn,frevo::tree=debug");
    }
}
