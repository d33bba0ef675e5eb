//! The admin socket of the server that is meant.

use std::io;
use std::path::{Path, PathBuf};

use frevo_admin::client::{self, Failure as Refused};
use frevo_config::Config;

use super::arguments::ServerPlace;
use crate::config_checks;
use crate::config_sources::Sources;
use crate::exit::{Done, Exit, Failure};
use crate::state;

/// The runtime directory of the service's unit.
const RUNTIME_DIRECTORY: &str = "/run/frevo";

/// Sockets at which the server may be, best first.
fn candidates(place: &ServerPlace) -> Result<Vec<PathBuf>, Failure> {
    if let Some(socket) = &place.socket {
        return Ok(vec![socket.clone()]);
    }
    let service = || Path::new(RUNTIME_DIRECTORY).join(state::ADMIN_SOCKET);
    let of = |config: &Config| match &config.admin.socket {
        Some(socket) => socket.clone(),
        None => state::dir_of(config).join(state::ADMIN_SOCKET),
    };
    // The keys that have no fault tell where the server is.
    let config = place.config.as_ref().map(|path| Sources::read(path)).transpose()?;
    if let Some(config) = config.and_then(|sources| sources.lenient().0) {
        let chosen = config.admin.socket.is_some();
        return Ok([of(&config)].into_iter().chain((!chosen).then(service)).collect());
    }
    // If this user cannot read the configuration, the socket that it names is not among the
    // candidates.
    let configured =
        config_checks::read(Path::new(state::DEFAULT_CONFIG)).ok().map(|config| of(&config));
    let own = state::default_dir().join(state::ADMIN_SOCKET);
    let all = [Some(service()), configured, state::session_socket(), Some(own)];
    let mut all: Vec<PathBuf> = all.into_iter().flatten().collect();
    all.dedup();
    Ok(all)
}

/// Sockets at which a server with this configuration may be, or one whose account file is in
/// `folder`; best first.
pub(super) fn candidates_of(config: Option<&Config>, folder: Option<&Path>) -> Vec<PathBuf> {
    let service = Path::new(RUNTIME_DIRECTORY).join(state::ADMIN_SOCKET);
    let of = |config: &Config| match &config.admin.socket {
        Some(socket) => socket.clone(),
        None => state::dir_of(config).join(state::ADMIN_SOCKET),
    };
    let configured = match config {
        Some(config) => Some(of(config)),
        // If this user cannot read the configuration, the socket that it names is not tried.
        None => {
            config_checks::read(Path::new(state::DEFAULT_CONFIG)).ok().map(|config| of(&config))
        }
    };
    let beside = folder.map(|folder| folder.join(state::ADMIN_SOCKET));
    let all = [configured, beside, Some(service), state::session_socket()];
    let mut sockets: Vec<PathBuf> = Vec::new();
    for socket in all.into_iter().flatten() {
        if !sockets.contains(&socket) {
            sockets.push(socket);
        }
    }
    sockets
}

/// Asks the server for the answer to a request.
pub(super) async fn ask(
    place: &ServerPlace,
    path: &str,
    body: Option<&str>,
) -> Result<Vec<u8>, Failure> {
    let answer = first_answer(place, async |socket| client::ask(socket, path, body).await);
    answer.await.map(|answer| answer.to_vec())
}

/// Asks the server for an answer without end, and gives its parts to `take` until that returns false.
pub(super) async fn follow(
    place: &ServerPlace,
    path: &str,
    body: &str,
    mut take: impl FnMut(&[u8]) -> bool,
) -> Done {
    first_answer(place, async |socket| client::follow(socket, path, body, &mut take).await).await
}

/// Asks at one socket after the other, until a server answers.
async fn first_answer<T>(
    place: &ServerPlace,
    mut asking: impl AsyncFnMut(&Path) -> Result<T, Refused>,
) -> Result<T, Failure> {
    let candidates = candidates(place)?;
    let mut denied = None;
    for socket in &candidates {
        match asking(socket).await {
            Ok(answer) => return Ok(answer),
            Err(Refused::Unreachable(error)) => {
                if error.kind() == io::ErrorKind::PermissionDenied {
                    denied.get_or_insert(socket);
                }
            }
            Err(Refused::Refused { status, why }) => {
                let exit = match status {
                    404 => Exit::NotFound,
                    400 | 409 => Exit::Usage,
                    _ => Exit::Failed,
                };
                return Err(Failure::new(exit, why));
            }
            Err(Refused::Broken(why)) => {
                let what = format!(
                    "the server at {} did not answer: {why}; if it is not for this user, run this \
                     as root or as the user that runs the server",
                    socket.display()
                );
                return Err(Failure::new(Exit::Connect, what));
            }
        }
    }
    if let Some(socket) = denied {
        let what = format!(
            "the admin socket {} is not for this user; run this as root or as the user that runs \
             the server",
            socket.display()
        );
        return Err(Failure::new(Exit::Connect, what));
    }
    let tried: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
    let what = format!(
        "no server runs here: nobody listens at {}; name another admin socket with --socket, or a \
         configuration with --config",
        tried.join(", ")
    );
    Err(Failure::new(Exit::Connect, what))
}
