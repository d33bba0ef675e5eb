//! WS-Discovery (2005/04) and the metadata of DPWS (2006/02), as Windows asks for them.
//!
//! A probe or resolve request comes over UDP, mostly multicast. Its answer names an address, where
//! Windows fetches the metadata over HTTP: there it reads that this is a computer, and its name.

mod answers;
mod budget;
mod http;
mod request;
mod shared;
mod udp;

use std::io;
use std::sync::Arc;

use tokio::task::JoinSet;

use self::shared::Shared;
use crate::announcement::Announcement;
use crate::interfaces::interfaces;
use crate::limits;

/// A responder that runs.
pub(crate) struct Responder {
    shared: Arc<Shared>,
    sockets: udp::Sockets,
    tasks: JoinSet<()>,
}

impl Responder {
    /// Listens, and greets the network.
    pub(crate) async fn start(announcement: Announcement) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(announcement));
        let sockets = udp::Sockets::open()?;
        let listener = http::listen()?;
        let mut tasks = JoinSet::new();
        sockets.join(&shared.interfaces());
        for socket in sockets.all() {
            tasks.spawn(udp::answer(socket, Arc::clone(&shared)));
        }
        tasks.spawn(http::serve(listener, Arc::clone(&shared)));
        tasks.spawn(follow(sockets.clone(), Arc::clone(&shared)));
        sockets.tell(&shared, &shared.interfaces(), answers::hello).await;
        Ok(Self { shared, sockets, tasks })
    }

    /// Says goodbye and ends.
    pub(crate) async fn stop(mut self) {
        let all = self.shared.interfaces();
        self.sockets.tell(&self.shared, &all, answers::bye).await;
        self.tasks.shutdown().await;
    }
}

/// Follows the interfaces of the machine: greets the networks of new ones.
async fn follow(sockets: udp::Sockets, shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(limits::INTERFACE_CHECK).await;
        let now = interfaces(shared.announcement());
        let before = shared.replace_interfaces(now.clone());
        let new: Vec<_> = now.into_iter().filter(|one| !before.contains(one)).collect();
        if !new.is_empty() {
            sockets.join(&new);
            sockets.tell(&shared, &new, answers::hello).await;
        }
    }
}
