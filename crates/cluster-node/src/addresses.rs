//! The addresses of a unit: they are at this machine while it serves the unit.

use std::sync::Arc;

use frevo_cluster::names::ShareName;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::hands::Hands;
use crate::happening::Happening;
use crate::limits::{ADDRESS_AGAIN, LOWER_PATIENCE};
use crate::notes::Notes;

/// Sets and removes the addresses of a unit, one call after the other, until they are as wanted.
#[derive(Debug)]
pub(crate) struct Addresses {
    wanted: watch::Sender<bool>,
    /// The last state that was reached. None before the first.
    reached: watch::Receiver<Option<bool>>,
    task: JoinHandle<()>,
}

impl Drop for Addresses {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Addresses {
    /// Removes the addresses that an earlier process of the node has left, and waits for orders.
    pub(crate) fn new(unit: ShareName, hands: Arc<dyn Hands>, notes: Arc<Notes>) -> Self {
        let (wanted, wants) = watch::channel(false);
        let (reaches, reached) = watch::channel(None);
        let task = tokio::spawn(keep(Keeper { unit, hands, notes }, wants, reaches));
        Self { wanted, reached, task }
    }

    /// Has the addresses set, or removed.
    pub(crate) fn want(&self, are_up: bool) {
        if !are_up && planted!(AddressKept) {
            return;
        }
        self.wanted.send_replace(are_up);
    }

    /// Returns a wait until the addresses have left this machine, with an end.
    pub(crate) fn lowered(&self) -> impl Future<Output = ()> + Send + 'static {
        self.want(false);
        let mut reached = self.reached.clone();
        async move {
            let gone = reached.wait_for(|state| *state == Some(false));
            // The next owner sets them all the same, and tells the network.
            _ = tokio::time::timeout(LOWER_PATIENCE, gone).await;
        }
    }
}

struct Keeper {
    unit: ShareName,
    hands: Arc<dyn Hands>,
    notes: Arc<Notes>,
}

async fn keep(
    keeper: Keeper,
    mut wants: watch::Receiver<bool>,
    reaches: watch::Sender<Option<bool>>,
) {
    let Keeper { unit, hands, notes } = keeper;
    loop {
        let wanted = *wants.borrow_and_update();
        let done = if wanted { hands.raise(&unit).await } else { hands.lower(&unit).await };
        match done {
            Ok(()) => {
                reaches.send_replace(Some(wanted));
                if wants.changed().await.is_err() {
                    return;
                }
            }
            Err(why) => {
                reaches.send_replace(None);
                notes.note(Happening::Addresses { unit: unit.clone(), why });
                // A change of the wish ends the wait.
                _ = tokio::time::timeout(ADDRESS_AGAIN, wants.changed()).await;
            }
        }
    }
}
