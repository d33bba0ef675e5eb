//! Reloads that a local program asks for over the admin interface, and whose end it waits for; the part of the
//! configuration that is not in force.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use frevo_admin::{ConfigurationState, RefusedReload, Reloaded, Reloading, UnservedShare};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

/// A request whose sender waits for it.
pub(super) struct Asked(oneshot::Sender<Result<(), String>>);

/// The end of the admin interface: it sends wishes.
pub(super) struct Asking {
    wishes: mpsc::Sender<Asked>,
    not_in_force: NotInForce,
}

/// The receiving end, for the thread that reloads.
pub(super) type ConfigReloads = mpsc::Receiver<Asked>;

/// The part of the configuration that is not in force, noted by the thread that reloads.
#[derive(Debug, Clone, Default)]
pub(super) struct NotInForce(Arc<Mutex<ConfigurationState>>);

impl NotInForce {
    /// Notes that the files are in force, but for these shares.
    pub(super) fn note(&self, not_served: Vec<UnservedShare>) {
        *self.0.lock() = ConfigurationState { refused: None, not_served };
    }

    /// Notes that the files are refused.
    pub(super) fn note_refusal(&self, why: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut state = self.0.lock();
        let since = state.refused.as_ref().map_or(now, |refused| refused.since);
        state.refused = Some(RefusedReload { since, why: why.to_owned() });
    }
}

/// Returns both ends. One wish can wait while another one is carried out.
pub(super) fn channel(not_in_force: NotInForce) -> (Asking, ConfigReloads) {
    let (wishes, receiver) = mpsc::channel(1);
    (Asking { wishes, not_in_force }, receiver)
}

impl Asked {
    pub(super) fn answer(self, done: Result<(), String>) {
        // The send fails if the connection that asked for the reload is closed meanwhile.
        let _ = self.0.send(done);
    }
}

impl Asking {
    /// Has the configuration read again, and waits for the end; for a thread that may block.
    pub(super) fn reload_now(&self) -> Result<(), String> {
        let stops = || String::from("the server stops");
        let (answer, answered) = oneshot::channel();
        self.wishes.blocking_send(Asked(answer)).map_err(|_| stops())?;
        answered.blocking_recv().unwrap_or_else(|_| Err(stops()))
    }
}

impl Reloading for Asking {
    fn reload(&self) -> Reloaded<'_> {
        Box::pin(async move {
            let stops = || String::from("the server stops");
            let (answer, answered) = oneshot::channel();
            self.wishes.send(Asked(answer)).await.map_err(|_| stops())?;
            answered.await.unwrap_or_else(|_| Err(stops()))
        })
    }

    fn state(&self) -> ConfigurationState {
        self.not_in_force.0.lock().clone()
    }
}
