//! The channels of a session: how many it has, where they lead, and which still work. MS-SMB2
//! 3.2.4.20.10, 3.2.5.14.11.
//!
//! Two tasks of each session that may have several channels: one opens channels that are missing,
//! the other ends channels whose path is dead, so that their requests are repeated on the others.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use frevo_net::socket::Facts;
use frevo_wire::Command;
use frevo_wire::Utf16;
use frevo_wire::command::ioctl::{self, CtlCode, network_interface};
use frevo_wire::command::tree_connect::{self, ShareFlags};
use frevo_wire::command::tree_disconnect;
use frevo_wire::file_id::FileId;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::activity::Activity;
use super::channel::{Channel, Failure, Live};
use super::connector::{Connector, is_final};
use super::paths::{Path, Paths};
use crate::connection::Call;
use crate::dial::ServerName;
use crate::error::Cause;
use crate::limits::{
    BACK_OFF_FIRST, CHANNEL_BACK_OFF_MAX, CHANNEL_DIAL, CHANNEL_LOOK, CHANNELS_AUTO_AFTER,
    CHANNELS_MAX, INTERFACES_BYTES, INTERFACES_EVERY, PATH_DEAD_AFTER, PATH_PROBE_AFTER,
    PATH_TRIES,
};

/// The known ways to the server, and the next attempt.
pub(super) struct Ways {
    paths: Paths,
    /// Time of the last question about the server's interfaces.
    asked: Option<Instant>,
    /// Paths on which a channel failed lately.
    failed: Vec<FailedPath>,
    /// Time of the next attempt, and the pause after it.
    next: Instant,
    pause: Duration,
    /// True after an answer that rules further channels out.
    is_over: bool,
}

/// The failure of an attempt at a further channel.
struct NotBound {
    why: Cause,
    /// True if another server has answered.
    is_elsewhere: bool,
}

impl From<Cause> for NotBound {
    fn from(why: Cause) -> Self {
        Self { why, is_elsewhere: false }
    }
}

/// A path without a connection.
struct FailedPath {
    path: Path,
    times: u32,
    /// True if it worked in this session.
    has_worked: bool,
}

impl Ways {
    /// Makes the state of a new session. With `is_later` the first channels are opened after a
    /// while: a count that the client chooses itself is for sessions that last, and a short command
    /// has ended by then.
    pub(super) fn new(is_later: bool) -> Self {
        let later = if is_later { CHANNELS_AUTO_AFTER } else { Duration::ZERO };
        Self {
            paths: Paths::by_name(),
            asked: None,
            failed: Vec::new(),
            next: Instant::now() + later,
            pause: BACK_OFF_FIRST,
            is_over: false,
        }
    }

    /// Opens channels until there are enough or an attempt fails.
    pub(super) async fn fill(&mut self, connector: &Connector, live: &Arc<Live>) {
        if self.asked.is_none_or(|at| at.elapsed() >= INTERFACES_EVERY) {
            self.ask(connector, live).await;
        }
        while Instant::now() >= self.next && self.add(connector, live).await {}
    }

    /// Returns the path for a further channel, if one is missing.
    fn missing(&self, connector: &Connector, live: &Live) -> Option<Path> {
        live.prune();
        let peers = live.peers();
        let wanted = match connector.options.channels {
            0 => self.paths.channels(),
            count => count.min(CHANNELS_MAX),
        };
        if self.is_over || peers.is_empty() || peers.len() >= wanted {
            return None;
        }
        let is_hopeless = |path: &Path| {
            let failed = self.failed.iter().find(|failed| failed.path == *path);
            failed.is_some_and(|failed| !failed.has_worked && failed.times >= PATH_TRIES)
        };
        self.paths.next(wanted, &peers, is_hopeless).cloned()
    }

    /// Opens one channel. Returns false if there are enough, or the attempt failed.
    async fn add(&mut self, connector: &Connector, live: &Arc<Live>) -> bool {
        let Some(path) = self.missing(connector, live) else { return false };
        // The name of a cluster may lead to another node; the address of this one does not.
        let server = path.server(&live.address);
        let bound = match timeout(CHANNEL_DIAL, connector.bind(live, &server)).await {
            Ok(bound) => bound,
            Err(_elapsed) => {
                Err(Cause::from(std::io::Error::from(std::io::ErrorKind::TimedOut)).into())
            }
        };
        match bound {
            Ok(channel) => {
                if !live.widen(channel) {
                    tracing::debug!(%server, "the session was lost before a further channel came");
                    return false;
                }
                tracing::debug!(%server, "a further channel");
                self.pause = BACK_OFF_FIRST;
                self.note(&path, true);
                true
            }
            Err(NotBound { why, is_elsewhere }) => {
                tracing::debug!(%server, %why, "a further channel could not be opened");
                // An address that belongs to another node by now says nothing about the others.
                self.is_over = !is_elsewhere && is_final(&why);
                self.next = Instant::now() + self.pause;
                self.pause = (self.pause * 2).min(CHANNEL_BACK_OFF_MAX);
                self.note(&path, false);
                false
            }
        }
    }

    fn note(&mut self, path: &Path, works: bool) {
        if !self.failed.iter().any(|failed| failed.path == *path) {
            self.failed.push(FailedPath { path: path.clone(), times: 0, has_worked: false });
        }
        if let Some(failed) = self.failed.iter_mut().find(|failed| failed.path == *path) {
            failed.has_worked |= works;
            failed.times = if works { 0 } else { failed.times.saturating_add(1) };
        }
    }

    /// Asks the server for its interfaces. One that does not answer is reached by its name.
    async fn ask(&mut self, connector: &Connector, live: &Arc<Live>) {
        self.asked = Some(Instant::now());
        self.failed.clear();
        let first = live.channel().filter(|_| connector.dial.knows_addresses());
        let first =
            first.map(|channel| (channel.connection.peer(), channel.connection.transport()));
        let Some((Some(peer), transport)) = first else { return };
        match timeout(CHANNEL_DIAL, connector.interfaces(live)).await {
            Ok(Ok(interfaces)) => self.paths = Paths::choose(&interfaces, peer, transport),
            Ok(Err(why)) => tracing::debug!(?why, "the server does not tell its interfaces"),
            Err(_elapsed) => tracing::debug!("the server is slow to tell its interfaces"),
        }
    }
}

/// Opens channels that are missing, until the session ends.
pub(super) async fn fill(
    connector: Arc<Connector>,
    live: Weak<Live>,
    activity: Arc<Activity>,
    mut ways: Ways,
) {
    sleep_until(ways.next).await;
    loop {
        let is_complete = match live.upgrade() {
            Some(live) if live.is_alive() && !ways.is_over => {
                ways.fill(&connector, &live).await;
                ways.missing(&connector, &live).is_none()
            }
            _ => return,
        };
        sleep(CHANNEL_LOOK).await;
        if is_complete {
            activity.for_fill.take().await;
        }
    }
}

/// Ends channels whose path is dead while others work, until the session ends.
pub(super) async fn watch(live: Weak<Live>, activity: Arc<Activity>) {
    let mut suspicions: Vec<(Weak<Channel>, Suspicion)> = Vec::new();
    loop {
        activity.for_watch.take().await;
        sleep(CHANNEL_LOOK).await;
        let Some(live) = live.upgrade() else { return };
        live.prune();
        if !live.is_alive() {
            return;
        }
        suspicions.retain(|(channel, _)| channel.strong_count() > 0);
        if look(&live, &mut suspicions, Instant::now()) {
            activity.for_watch.set();
        }
    }
}

/// Looks at each channel once. Returns true if another look is due although no further request is
/// sent: requests are under way on one of several channels.
fn look(live: &Live, suspicions: &mut Vec<(Weak<Channel>, Suspicion)>, now: Instant) -> bool {
    let channels = live.channels.read().clone();
    let is_busy = channels.iter().any(|channel| channel.connection.load() > 0);
    let mut dead = Vec::new();
    let mut works = false;
    for channel in &channels {
        let Some(facts) = channel.connection.facts() else { continue };
        // The server's TCP has acknowledged the requests but the server has not answered, or the
        // channel is idle. A probe shows if the path still works.
        let is_quiet = facts.unacknowledged_bytes == 0 && facts.since_received >= PATH_PROBE_AFTER;
        if is_busy && is_quiet {
            channel.connection.probe();
        }
        let of_it = |(one, _): &&mut (Weak<Channel>, _)| one.as_ptr() == Arc::as_ptr(channel);
        let suspicion = match suspicions.iter_mut().find(of_it) {
            Some((_, suspicion)) => suspicion,
            None => {
                suspicions.push((Arc::downgrade(channel), Suspicion::default()));
                continue;
            }
        };
        match suspicion.judge(&facts, now) {
            Verdict::Works => works = true,
            Verdict::Unknown => {}
            Verdict::Dead => dead.push(channel),
        }
    }
    // The last working channel is not ended here, because `connection::keep_watch` gives it more
    // time.
    for channel in dead.into_iter().filter(|_| works) {
        tracing::info!(server = ?channel.connection.peer(), "a channel is dead; others go on");
        channel.connection.fail(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
    }
    is_busy && channels.len() > 1
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Works,
    Unknown,
    Dead,
}

/// The time since when nothing that was sent on a channel has been acknowledged. That is the
/// work of the peer's kernel, so a busy server is not taken for a dead path.
#[derive(Debug, Default)]
struct Suspicion(Option<Instant>);

impl Suspicion {
    fn judge(&mut self, facts: &Facts, now: Instant) -> Verdict {
        if facts.unacknowledged_bytes == 0 {
            self.0 = None;
            return Verdict::Works;
        }
        let since = *self.0.get_or_insert(now);
        let waited = now.saturating_duration_since(since);
        if facts.since_acknowledged.min(facts.since_received) < waited {
            self.0 = Some(now);
            return Verdict::Works;
        }
        // On a long path, four round trips are allowed, because lost packets are sent again.
        let round_trip = facts.rtt + facts.rtt_deviation * 4;
        if waited >= PATH_DEAD_AFTER.max(round_trip * 4) { Verdict::Dead } else { Verdict::Unknown }
    }
}

impl Live {
    /// Starts the tasks that look after the channels of this session.
    pub(super) fn keep(self: &Arc<Self>, connector: &Arc<Connector>, ways: Ways) {
        let activity = || Arc::clone(&self.activity);
        let fill = fill(Arc::clone(connector), Arc::downgrade(self), activity(), ways);
        let watch = watch(Arc::downgrade(self), activity());
        let tasks = [tokio::spawn(fill).abort_handle(), tokio::spawn(watch).abort_handle()];
        self.keepers.lock().extend(tasks);
    }

    /// Returns the server's address on each channel.
    fn peers(&self) -> Vec<IpAddr> {
        let channels = self.channels.read();
        channels.iter().filter_map(|channel| channel.connection.peer()).collect()
    }
}

impl Connector {
    /// Connects to `server`, an address of the session's server, and binds the session to the
    /// connection.
    async fn bind(&self, live: &Live, server: &ServerName) -> Result<Channel, NotBound> {
        let main = live.channel().ok_or(Cause::Unknown)?;
        let Some(signing) = &live.signing else {
            return Err(Cause::Usage("the session of a guest has one connection").into());
        };
        let logon = self.logon().await?;
        // All channels use the same transport. Each request goes to the channel with the least
        // work, whatever the speed of the channel, so a slow channel would delay requests.
        // MS-SMB2 3.3.5.5.2: dialect and ClientGuid are those of the first connection.
        let first = main.connection.agreed();
        let transport = main.connection.transport();
        let connection = self.connect_further(server, transport, live.offer).await?;
        let agreed = connection.agreed();
        // The terms are compared before the logon, so that a wrong server learns nothing about the
        // user.
        // MS-SMB2 3.2.5.2: another ServerGuid is another server.
        if agreed.server_guid != first.server_guid {
            let why = Cause::Protocol("another server on a further connection");
            return Err(NotBound { why, is_elsewhere: true });
        }
        if agreed.terms != live.terms {
            return Err(Cause::Protocol("other terms on a further connection").into());
        }
        Ok(logon.bind(connection, live.session_id, signing, &live.security).await?)
    }

    /// Asks for the server's interfaces, through a tree connect of its own.
    async fn interfaces(
        &self,
        live: &Arc<Live>,
    ) -> Result<Vec<network_interface::NetworkInterface>, Failure> {
        let unc = format!("\\\\{}\\IPC$", self.server.host);
        let path = Utf16::from_str(&unc);
        let call = Call::new(Command::TREE_CONNECT, |w| {
            tree_connect::Request::new(path).encode(w);
        });
        let message = live.ask(call.signed(), false, &[]).await?;
        let response = tree_connect::Response::parse(message.bytes()).map_err(Cause::from)?;
        let seal = live.terms.is_smb3() && response.share_flags.contains(ShareFlags::ENCRYPT_DATA);
        let tree_id = message.header.tree_id().unwrap_or(0);
        let code = CtlCode::QUERY_NETWORK_INTERFACE_INFO;
        let request = ioctl::Request::fsctl(code, FileId::ALL_ONES, &[], INTERFACES_BYTES);
        let call = Call::new(Command::IOCTL, |w| request.encode(w)).cost(INTERFACES_BYTES);
        let answer = live.ask(Call { tree_id, ..call.signed() }, seal, &[]).await;
        let call = Call::new(Command::TREE_DISCONNECT, |w| tree_disconnect::Request.encode(w));
        let _ = live.ask(Call { tree_id, ..call }, seal, &[]).await;
        let message = answer?;
        let response = ioctl::Response::parse(message.bytes()).map_err(Cause::from)?;
        Ok(network_interface::parse_list(response.output).map_err(Cause::from)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(unacknowledged_bytes: usize, quiet: u64) -> Facts {
        Facts {
            rtt: Duration::from_millis(1),
            rtt_deviation: Duration::from_millis(1),
            rto: Duration::from_millis(200),
            unacknowledged_bytes,
            retransmits: 0,
            total_retransmits: 0,
            since_received: Duration::from_millis(quiet),
            since_acknowledged: Duration::from_millis(quiet),
        }
    }

    #[test]
    fn a_path_is_dead_when_nothing_is_acknowledged_for_a_while() {
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let mut suspicion = Suspicion::default();
        // The channel was idle for an hour and has just sent data. The long silence before that
        // does not count.
        assert_eq!(suspicion.judge(&facts(0, 3_600_000), at(0)), Verdict::Works);
        assert_eq!(suspicion.judge(&facts(68, 3_600_200), at(200)), Verdict::Unknown);
        assert_eq!(suspicion.judge(&facts(68, 3_600_400), at(400)), Verdict::Unknown);
        // The server has acknowledged a part of the data, so the path works and the waiting time
        // begins again.
        assert_eq!(suspicion.judge(&facts(30, 100), at(600)), Verdict::Works);
        let limit = u64::try_from(PATH_DEAD_AFTER.as_millis()).unwrap();
        assert_eq!(suspicion.judge(&facts(30, 100 + limit - 1), at(599 + limit)), Verdict::Unknown);
        assert_eq!(suspicion.judge(&facts(30, 100 + limit), at(600 + limit)), Verdict::Dead);
        assert_eq!(suspicion.judge(&facts(0, 10), at(2_000)), Verdict::Works);
    }

    #[test]
    fn a_long_way_gets_more_time() {
        let begin = Instant::now();
        let long = Facts { rtt: Duration::from_millis(600), ..facts(1, 3_600_000) };
        let mut suspicion = Suspicion::default();
        for (millis, expected) in
            [(0, Verdict::Unknown), (2_000, Verdict::Unknown), (2_500, Verdict::Dead)]
        {
            let now = begin + Duration::from_millis(millis);
            assert_eq!(suspicion.judge(&long, now), expected, "{millis} ms");
        }
    }
}
