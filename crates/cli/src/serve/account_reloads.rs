//! The account file after another program has changed it: it is read again, and nothing else of the
//! configuration.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use frevo_admin::{AccountFiles, NotRead, ReadAgain};
use frevo_server::{Reload, Reviewed, Server};
use frevo_wire::dtyp::Guid;
use tokio::sync::{mpsc, oneshot};

use super::loaded::Loaded;
use crate::arguments::Serve;
use crate::exit::Failure;
use crate::state;

/// A request whose sender waits for it.
pub(super) struct Asked {
    file: PathBuf,
    answer: oneshot::Sender<Result<Reviewed, NotRead>>,
}

/// The end of the admin interface: it sends wishes.
pub(super) struct Asking(mpsc::Sender<Asked>);

/// The receiving end, for the thread that reloads.
pub(super) type AccountReloads = mpsc::Receiver<Asked>;

/// Returns both ends. One wish can wait while another one is carried out.
pub(super) fn channel() -> (Asking, AccountReloads) {
    let (sender, receiver) = mpsc::channel(1);
    (Asking(sender), receiver)
}

impl Asking {
    /// Has the accounts read again, and waits for the end; for a thread that may block.
    pub(super) fn read_now(&self, file: PathBuf) -> Result<Reviewed, NotRead> {
        let stops = || NotRead::Failed(String::from("the server stops"));
        let (answer, answered) = oneshot::channel();
        self.0.blocking_send(Asked { file, answer }).map_err(|_| stops())?;
        answered.blocking_recv().unwrap_or_else(|_| Err(stops()))
    }
}

impl AccountFiles for Asking {
    fn read_again(&self, file: PathBuf) -> ReadAgain<'_> {
        Box::pin(async move {
            let stops = || NotRead::Failed(String::from("the server stops"));
            let (answer, answered) = oneshot::channel();
            self.0.send(Asked { file, answer }).await.map_err(|_| stops())?;
            answered.await.unwrap_or_else(|_| Err(stops()))
        })
    }
}

impl Asked {
    /// Reads the accounts again, if the file is the server's, and applies them.
    pub(super) fn carry_out(
        self,
        loaded: &mut Loaded,
        server: &Server,
        arguments: &Serve,
        guid: Guid,
    ) -> Option<Reviewed> {
        let done = if loaded.plan.has_state
            && is_same_file(&self.file, &state::users_file_of(&loaded.plan.config))
        {
            apply(loaded, server, arguments, guid).map_err(|failure| {
                tracing::error!(target: "frevo::server",
                    "the changed accounts were not applied, the old ones stay in force: {failure}");
                NotRead::Failed(failure.to_string())
            })
        } else {
            Err(NotRead::OtherFile)
        };
        let reviewed = done.as_ref().ok().copied();
        // The send fails if the connection that asked for the reload is closed meanwhile.
        let _ = self.answer.send(done);
        reviewed
    }
}

fn apply(
    loaded: &mut Loaded,
    server: &Server,
    arguments: &Serve,
    guid: Guid,
) -> Result<Reviewed, Failure> {
    loaded.read_accounts(arguments, guid)?;
    let change = Reload::new().settings(loaded.settings.clone()).accounts(loaded.accounts());
    let reviewed = server.reload(change);
    let Reviewed { sessions, tree_connects, .. } = reviewed;
    tracing::info!(target: "frevo::server", sessions, tree_connects,
        "the accounts were read again; sessions and uses of shares that they do not allow ended");
    Ok(reviewed)
}

/// True if both paths lead to one file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    one == other || identity(one).is_some_and(|one| Some(one) == identity(other))
}
