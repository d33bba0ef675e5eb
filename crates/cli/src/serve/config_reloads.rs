//! Reloads that a local program asks for over the admin interface, and whose end it waits for.

use frevo_admin::{Reloaded, Reloading};
use tokio::sync::{mpsc, oneshot};

/// A request whose sender waits for it.
pub(super) struct Asked(oneshot::Sender<Result<(), String>>);

/// The end of the admin interface: it sends wishes.
pub(super) struct Asking(mpsc::Sender<Asked>);

/// The receiving end, for the thread that reloads.
pub(super) type ConfigReloads = mpsc::Receiver<Asked>;

/// Returns both ends. One wish can wait while another one is carried out.
pub(super) fn channel() -> (Asking, ConfigReloads) {
    let (sender, receiver) = mpsc::channel(1);
    (Asking(sender), receiver)
}

impl Asked {
    pub(super) fn answer(self, done: Result<(), String>) {
        // The send fails if the connection that asked for the reload is closed meanwhile.
        let _ = self.0.send(done);
    }
}

impl Reloading for Asking {
    fn reload(&self) -> Reloaded<'_> {
        Box::pin(async move {
            let stops = || String::from("the server stops");
            let (answer, answered) = oneshot::channel();
            self.0.send(Asked(answer)).await.map_err(|_| stops())?;
            answered.await.unwrap_or_else(|_| Err(stops()))
        })
    }
}
