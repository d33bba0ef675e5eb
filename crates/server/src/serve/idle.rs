//! The end of idle sessions: Session.IdleTime of MS-SMB2 3.3.1.8 and 3.3.5.2.8.
//!
//! A session that has nothing open and asks for nothing is ended after a while. Its
//! connection is closed if it has no other session, as Windows does (`autodisconnect` of
//! LanmanServer, 15 minutes): clients connect again when they need the share, and their
//! users notice nothing. An ECHO without a SessionId belongs to no session and does not
//! count as use.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::base::limits::IDLE_LOOK;
use crate::base::panics;
use crate::objects::notice::Notice;
use crate::objects::server::ServerState;
use crate::objects::session::{Session, State};

/// Ends idle sessions, until this future is dropped.
pub async fn watch(server: Arc<ServerState>) {
    loop {
        sleep(IDLE_LOOK).await;
        panics::contained(|| look(&server));
        server.rates.sweep().await;
    }
}

/// Ends the sessions that have been idle for as long as they may. Tokens of copies that
/// nobody used go when their time is over.
fn look(server: &Arc<ServerState>) {
    let minutes = server.settings().idle_session_minutes;
    let now = Instant::now();
    for session in server.sessions() {
        let idle = session.idle_for(now);
        session.offloads.lock().expire();
        let most = Duration::from_secs(60 * u64::from(minutes));
        if minutes != 0 && idle >= most {
            panics::contained(|| end(server, &session));
        }
    }
}

fn end(server: &Arc<ServerState>, session: &Session) {
    let channels = session.channel_handles();
    if session.state() != State::InProgress {
        server.dismiss_session(session, "it was idle for too long");
    }
    for channel in channels {
        // The send fails if the connection has ended meanwhile, and then it needs no notice.
        let _ = channel.send(Notice::EndIfUnused);
    }
}
