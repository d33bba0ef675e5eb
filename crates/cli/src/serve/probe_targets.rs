//! The process that looks after the servers of targets in the server's place: `frevo probe-targets`.
//!
//! The server is confined before it serves anybody, and connects to nobody. So this process starts earlier
//! and shares nothing with the server but a socket: lines with all servers go one way, lines about single
//! servers the other way. It asks whom the configuration names, at one port.

mod health;
mod negotiate;

use std::collections::HashMap;
use std::io::{BufRead as _, Write as _};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use frevo_config::limits::{PROBED_ADDRESSES, PROBES_AT_ONCE};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use self::health::Health;
use self::negotiate::{PATIENCE, probe};
use super::confine::helpers;
use crate::exit::{Done, Failure};

/// Time between two looks at a name that is not probed.
const RESOLVE_EVERY: Duration = Duration::from_secs(300);
/// Time for which the addresses of a name are told when it is not resolved any more.
const ADDRESSES_FOR: Duration = Duration::from_secs(900);
/// The time in which servers are looked at first, so that not all are asked at one moment.
const FIRST_WITHIN: Duration = Duration::from_secs(2);
/// Reports that wait to be written.
const REPORTS: usize = 64;

/// A server that is looked after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Its name or address, in lower case.
    pub(super) name: String,
    /// Seconds between two probes. None: its name alone is resolved.
    pub(super) probe_seconds: Option<u32>,
}

impl Wanted {
    pub(super) fn object(&self) -> Value {
        json!({ "name": self.name, "probe": self.probe_seconds })
    }

    fn parse(object: &Value) -> Option<Self> {
        let seconds = object.get("probe").and_then(Value::as_u64);
        let probe_seconds = seconds.and_then(|seconds| u32::try_from(seconds).ok());
        Some(Self { name: object.get("name")?.as_str()?.to_owned(), probe_seconds })
    }

    /// The time to the next look.
    fn pause(&self) -> Duration {
        self.probe_seconds.map_or(RESOLVE_EVERY, |seconds| Duration::from_secs(seconds.into()))
    }
}

/// The findings about a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    /// Its name, as it was told.
    pub(super) name: String,
    /// True for a server that answers, false for one that fails. None for one that is not judged.
    pub(super) answers: Option<bool>,
    /// The reason why it fails.
    pub(super) why: Option<String>,
    /// Its addresses.
    pub(super) addresses: Vec<IpAddr>,
}

impl Report {
    fn object(&self) -> Value {
        let addresses: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
        json!({ "name": self.name, "answers": self.answers, "why": self.why, "addresses": addresses })
    }

    /// Reads a line of the process. None for one that makes no sense.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let object: Value = serde_json::from_str(line).ok()?;
        let text = |key: &str| object.get(key).and_then(Value::as_str).map(str::to_owned);
        let listed = object.get("addresses")?.as_array()?.iter().take(PROBED_ADDRESSES);
        let addresses = listed.filter_map(|address| address.as_str()?.parse().ok());
        Some(Self {
            name: text("name")?,
            answers: object.get("answers").and_then(Value::as_bool),
            why: text("why"),
            addresses: addresses.collect(),
        })
    }
}

/// The process: until standard input ends.
pub(crate) fn run(port: u16) -> Done {
    // The confinement begins before the process has other threads and before it reads a byte of
    // anybody. The thread's name only helps in process lists.
    let _ = rustix::thread::set_name(c"frevo-targets");
    helpers::confine_targets(port);
    let (sender, lists) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(Value::Array(list)) = serde_json::from_str(&line) else { continue };
            if sender.blocking_send(list.iter().filter_map(Wanted::parse).collect()).is_err() {
                return;
            }
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(PROBES_AT_ONCE)
        .build()
        .map_err(Failure::failed("cannot start the event loop"))?;
    runtime.block_on(follow(lists, port));
    runtime.shutdown_background();
    Ok(())
}

/// A server with the task that looks after it.
struct Watched {
    wanted: watch::Sender<Wanted>,
    task: AbortHandle,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Looks after the servers of the newest list, and writes the findings.
async fn follow(mut lists: mpsc::Receiver<Vec<Wanted>>, port: u16) {
    let asking = Asking {
        port,
        permits: Arc::new(Semaphore::new(PROBES_AT_ONCE)),
        lookups: Arc::new(Semaphore::new(PROBES_AT_ONCE)),
    };
    let (sender, mut reports) = mpsc::channel::<Report>(REPORTS);
    let mut watched: HashMap<String, Watched> = HashMap::new();
    loop {
        tokio::select! {
            list = lists.recv() => {
                let Some(list) = list else { return };
                watched.retain(|name, _| list.iter().any(|wanted| wanted.name == *name));
                for wanted in list {
                    if let Some(known) = watched.get(&wanted.name) {
                        // A server of which nothing has changed is not looked at before its time.
                        known.wanted.send_if_modified(|old| {
                            let is_new = *old != wanted;
                            *old = wanted;
                            is_new
                        });
                        continue;
                    }
                    let name = wanted.name.clone();
                    let (tell, told) = watch::channel(wanted);
                    let looks = asking.clone().look_after(told, sender.clone());
                    let task = tokio::spawn(looks).abort_handle();
                    watched.insert(name, Watched { wanted: tell, task });
                }
            }
            Some(report) = reports.recv() => {
                let mut stdout = std::io::stdout().lock();
                let told = writeln!(stdout, "{}", report.object()).and_then(|()| stdout.flush());
                if told.is_err() {
                    return;
                }
            }
        }
    }
}

/// The way in which servers are asked.
#[derive(Debug, Clone)]
struct Asking {
    port: u16,
    permits: Arc<Semaphore>,
    /// A look at a name that is given up goes on in the resolver, and keeps its place here until it ends.
    lookups: Arc<Semaphore>,
}

impl Asking {
    /// Looks at one server again and again, and tells what has changed.
    async fn look_after(self, mut told: watch::Receiver<Wanted>, reports: mpsc::Sender<Report>) {
        let (mut health, mut addresses) = (Health::default(), Addresses::default());
        let mut last = None;
        let first = told.borrow().pause().min(FIRST_WITHIN);
        tokio::time::sleep(first.mul_f64(chance())).await;
        loop {
            if told.has_changed().unwrap_or(false) {
                // The server may have forgotten what it was told of this name.
                last = None;
            }
            let wanted = told.borrow_and_update().clone();
            let Ok(permit) = self.permits.acquire().await else { return };
            let found = addresses.look(&wanted.name, &self.lookups).await;
            if wanted.probe_seconds.is_some() {
                health.note(match found {
                    // The resolver's fault is not the server's.
                    Err(why) if addresses.known.is_empty() => Err(why),
                    _ => probe(&addresses.known, self.port).await,
                });
            } else {
                health = Health::default();
            }
            drop(permit);
            let report = Report {
                name: wanted.name.clone(),
                answers: health.answers(),
                why: health.why().map(str::to_owned),
                addresses: addresses.known.clone(),
            };
            if last.as_ref() != Some(&report) {
                if reports.send(report.clone()).await.is_err() {
                    return;
                }
                last = Some(report);
            }
            // Between three quarters and five quarters of the time: servers are not asked in step.
            let pause = wanted.pause().mul_f64(0.75 + chance() / 2.0);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                changed = told.changed() => if changed.is_err() { return },
            }
        }
    }
}

/// The addresses of a name, as they were found last.
#[derive(Debug, Default)]
struct Addresses {
    known: Vec<IpAddr>,
    until: Option<Instant>,
}

impl Addresses {
    /// Resolves the name. If that fails the addresses stay for [`ADDRESSES_FOR`].
    async fn look(&mut self, name: &str, lookups: &Arc<Semaphore>) -> Result<(), String> {
        match resolve(name, lookups).await {
            Ok(found) => {
                (self.known, self.until) = (found, Some(Instant::now() + ADDRESSES_FOR));
                Ok(())
            }
            Err(why) => {
                if self.until.is_none_or(|until| Instant::now() >= until) {
                    self.known.clear();
                }
                Err(why)
            }
        }
    }
}

/// Returns the addresses of a name, sorted.
async fn resolve(name: &str, lookups: &Arc<Semaphore>) -> Result<Vec<IpAddr>, String> {
    if let Ok(address) = name.parse() {
        return Ok(vec![address]);
    }
    let (asked, lookups) = ((name.to_owned(), 0), Arc::clone(lookups));
    let found = tokio::time::timeout(PATIENCE, async move {
        let place = lookups.acquire_owned().await.map_err(std::io::Error::other)?;
        tokio::task::spawn_blocking(move || {
            let _place = place;
            asked.to_socket_addrs()
        })
        .await?
    });
    let found = found.await.map_err(|_| String::from("its name is not resolved in time"))?;
    let found = found.map_err(|error| format!("its name is not resolved: {error}"))?;
    let mut addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.truncate(PROBED_ADDRESSES);
    Ok(addresses)
}

/// A number between 0 and 1 by chance.
fn chance() -> f64 {
    let mut byte = [0];
    // Without random bytes all servers are asked in step, which is no fault.
    let _ = getrandom::fill(&mut byte);
    f64::from(byte[0]) / 255.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        for probe_seconds in [None, Some(10)] {
            let wanted = Wanted { name: String::from("nas.test"), probe_seconds };
            assert_eq!(Wanted::parse(&wanted.object()), Some(wanted));
        }
        let report = Report {
            name: String::from("nas.test"),
            answers: Some(false),
            why: Some(String::from("10.0.0.1: refused\n")),
            addresses: vec![IpAddr::from([10, 0, 0, 1]), "2001:db8::1".parse().unwrap()],
        };
        assert_eq!(Report::parse(&report.object().to_string()), Some(report));
        for odd in ["", "{}", "[]", "{\"name\": 7, \"addresses\": []}", "{\"name\": \"a\"}"] {
            assert_eq!(Report::parse(odd), None, "{odd}");
        }
        let many = vec!["192.0.2.1"; 100];
        let many = json!({ "name": "a", "addresses": many }).to_string();
        assert_eq!(Report::parse(&many).unwrap().addresses.len(), PROBED_ADDRESSES);
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_have_an_end() {
        let lookups = Arc::new(Semaphore::new(1));
        let mut addresses = Addresses::default();
        addresses.look("192.0.2.7", &lookups).await.unwrap();
        assert_eq!(addresses.known.len(), 1);
        // A name that no resolver takes.
        let lost = "a\0b";
        addresses.look(lost, &lookups).await.unwrap_err();
        assert_eq!(addresses.known.len(), 1);
        tokio::time::advance(ADDRESSES_FOR).await;
        addresses.look(lost, &lookups).await.unwrap_err();
        assert_eq!(addresses.known.len(), 0);
    }
}
