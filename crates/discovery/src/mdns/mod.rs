//! Multicast DNS (RFC 6762, RFC 6763): the services that Finder and Linux file managers list. Where
//! Avahi runs, it answers for all services of the machine, so it is asked to announce these too.

mod avahi;
mod on_link;
mod own;
mod services;

use std::io;

use crate::announcement::Announcement;

/// A running announcement.
pub(crate) enum Responder {
    Own(own::Responder),
    Avahi(avahi::Registered),
}

impl Responder {
    /// Announces the services of a server.
    pub(crate) async fn start(announcement: &Announcement) -> io::Result<Self> {
        let wanted = announcement.clone();
        let by_avahi = tokio::task::spawn_blocking(move || avahi::Registered::new(wanted));
        match by_avahi.await {
            Ok(Ok(registered)) => {
                tracing::debug!("Avahi announces the server");
                Ok(Self::Avahi(registered))
            }
            Ok(Err(why)) => {
                tracing::debug!(%why, "Avahi is not used");
                own::Responder::start(announcement).map(Self::Own)
            }
            Err(_) => Err(io::Error::other("internal error")),
        }
    }

    /// Says goodbye for all services and ends.
    pub(crate) async fn stop(self) {
        match self {
            Self::Own(own) => own.stop().await,
            // Dropping `registered` disconnects this client, and Avahi then announces that the
            // services are gone.
            Self::Avahi(registered) => drop(registered),
        }
    }
}
