//! Changes of shares and namespaces that administrators ask for over the network, carried out by the thread
//! that reloads.

use std::fmt;

use frevo_server::{NamespaceChange, NotChanged, NotEdited, ShareEdit, ShareEditor};
use tokio::sync::{mpsc, oneshot};

use super::cluster::{Made, State};

/// A change that an administrator has asked for and waits for.
pub(super) enum Asked {
    /// A change of the shares.
    Share {
        edit: ShareEdit,
        /// The name of the administrator.
        by: String,
        answer: oneshot::Sender<Result<(), NotEdited>>,
    },
    /// A change of the namespaces.
    Namespace { change: NamespaceChange, answer: oneshot::Sender<Result<(), NotChanged>> },
    /// The namespaces that the cluster keeps, after a change of this node (`made`) or of others.
    Kept { state: State, made: Option<Made> },
}

/// The server's end: it sends changes.
#[derive(Clone)]
pub(super) struct Asking(mpsc::Sender<Asked>);

/// The receiving end, for the thread that reloads.
pub(super) type Edits = mpsc::Receiver<Asked>;

/// Returns both ends. One change can wait while another one is carried out: administrators are few.
pub(super) fn channel() -> (Asking, Edits) {
    let (sender, receiver) = mpsc::channel(1);
    (Asking(sender), receiver)
}

impl Asking {
    /// Has a state of the cluster's namespaces served. False if the server ends.
    pub(super) async fn serve(&self, state: State, made: Option<Made>) -> bool {
        self.0.send(Asked::Kept { state, made }).await.is_ok()
    }
}

impl ShareEditor for Asking {
    fn edit(&self, by: &str, edit: ShareEdit) -> Result<(), NotEdited> {
        let stops = || NotEdited::Failed(String::from("the server stops"));
        let (answer, answered) = oneshot::channel();
        let asked = Asked::Share { edit, by: by.to_owned(), answer };
        self.0.blocking_send(asked).map_err(|_| stops())?;
        answered.blocking_recv().unwrap_or_else(|_| Err(stops()))
    }

    fn change_namespace(&self, _by: &str, change: NamespaceChange) -> Result<(), NotChanged> {
        let stops = || NotChanged::Failed(String::from("the server stops"));
        let (answer, answered) = oneshot::channel();
        self.0.blocking_send(Asked::Namespace { change, answer }).map_err(|_| stops())?;
        answered.blocking_recv().unwrap_or_else(|_| Err(stops()))
    }
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asking")
    }
}
