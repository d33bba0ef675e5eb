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
use crate::interfaces::{Interface, interfaces};
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

/// Returns the answer to a datagram of the host 192.0.2.20, for a fuzz target.
pub(crate) fn answer_to_datagram(
    about: Announcement,
    on: Interface,
    message: &[u8],
) -> Option<String> {
    let shared = Shared::new(about);
    shared.replace_interfaces(vec![on]);
    let peer = (std::net::Ipv4Addr::new(192, 0, 2, 20), 50_000).into();
    udp::reply(&shared, &peer, message).map(|(text, _)| text)
}

/// Returns the answer to a request for metadata, for a fuzz target.
pub(crate) async fn answer_to_request(about: Announcement, mut stream: &[u8]) -> Option<String> {
    let shared = Shared::new(about);
    let (path, body) = http::read_request(&mut stream).await?;
    http::answer_to(&shared, &path, &body)
}
