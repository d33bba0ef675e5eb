//! Lines for systemd's journal, by its native protocol, with the fields of their events.
//!
//! The socket is connected once, before the server is confined. When the journal has a new socket,
//! the process that asks the host connects to that one.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frevo_posix::name_service::log_socket;
use parking_lot::RwLock;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// The journal's socket.
const SOCKET: &str = "/run/systemd/journal/socket";
/// The name under which `journalctl -t` finds the lines.
const IDENTIFIER: &str = "frevo";
/// Bytes of each value where an entry was too long for a datagram.
const CUT: usize = 1024;

/// The layer that writes.
#[derive(Debug, Clone)]
pub(super) struct Journal(Arc<Connection>);

#[derive(Debug)]
struct Connection {
    socket: RwLock<UnixDatagram>,
    /// True while a thread reconnects.
    is_connecting: AtomicBool,
}

impl Journal {
    /// Connects to the journal.
    pub(super) fn connect() -> io::Result<Self> {
        Ok(Self::of(log_socket(Path::new(SOCKET))?))
    }

    fn of(socket: UnixDatagram) -> Self {
        let is_connecting = AtomicBool::new(false);
        Self(Arc::new(Connection { socket: RwLock::new(socket), is_connecting }))
    }

    /// Sends an entry. A line that cannot be sent is lost: no other place could report it.
    fn send(&self, entry: &Entry) {
        let socket = self.0.socket.read();
        let sent = socket.send(&entry.encode(usize::MAX)).or_else(|error| {
            let is_long = error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error());
            if is_long { socket.send(&entry.encode(CUT)) } else { Err(error) }
        });
        drop(socket);
        if sent.is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock) {
            self.connect_anew();
        }
    }

    /// Connects on a thread of its own: the one that logs must not wait.
    fn connect_anew(&self) {
        if self.0.is_connecting.swap(true, Ordering::AcqRel) {
            return;
        }
        let connection = Arc::clone(&self.0);
        let connect = move || {
            frevo_net::cores::unbind();
            if let Ok(socket) = log_socket(Path::new(SOCKET)) {
                *connection.socket.write() = socket;
            }
            connection.is_connecting.store(false, Ordering::Release);
        };
        let started = std::thread::Builder::new().name(String::from("journal")).spawn(connect);
        if started.is_err() {
            self.0.is_connecting.store(false, Ordering::Release);
        }
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.send(&Entry::of(event));
    }
}

/// The fields of an entry.
#[derive(Debug, Default)]
struct Entry(Vec<(String, String)>);

impl Entry {
    fn of(event: &Event<'_>) -> Self {
        let metadata = event.metadata();
        let mut entry = Self::default();
        entry.put("PRIORITY", priority(*metadata.level()));
        entry.put("TARGET", metadata.target());
        entry.put("SYSLOG_IDENTIFIER", IDENTIFIER);
        if let Some(file) = metadata.file() {
            entry.put("CODE_FILE", file);
        }
        if let Some(line) = metadata.line() {
            entry.put("CODE_LINE", &line.to_string());
        }
        event.record(&mut entry);
        entry
    }

    fn put(&mut self, name: &str, value: &str) {
        self.0.push((name.to_owned(), value.to_owned()));
    }

    /// Puts a field of an event. All but the message have a prefix, so that they are none of the
    /// journal's own.
    fn put_field(&mut self, field: &Field, value: String) {
        let name = match field.name() {
            "message" => String::from("MESSAGE"),
            name => format!("F_{}", journal_name(name)),
        };
        self.0.push((name, value));
    }

    /// The entry as bytes, with at most `most` bytes of each value. A length goes before each value,
    /// which may have line ends.
    fn encode(&self, most: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        for (name, value) in &self.0 {
            let end = (0..=most.min(value.len())).rev().find(|at| value.is_char_boundary(*at));
            let value = value.get(..end.unwrap_or_default()).unwrap_or_default();
            out.extend_from_slice(name.as_bytes());
            out.push(b'\n');
            let length = u64::try_from(value.len()).unwrap_or(u64::MAX);
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(value.as_bytes());
            out.push(b'\n');
        }
        out
    }
}

impl Visit for Entry {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_field(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.put_field(field, format!("{value:?}"));
    }
}

/// The severities of syslog: RFC 5424 6.2.1.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "5",
        Level::DEBUG => "6",
        Level::TRACE => "7",
    }
}

/// A name as the journal accepts it: capital letters, digits and underscores.
fn journal_name(name: &str) -> String {
    let known = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    name.chars().map(known).collect()
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::Registry;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    fn received(daemon: &UnixDatagram) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 18];
        let count = daemon.recv(&mut bytes).unwrap();
        bytes.truncate(count);
        bytes
    }

    fn field(name: &str, value: &str) -> Vec<u8> {
        let length = u64::try_from(value.len()).unwrap().to_le_bytes();
        [name.as_bytes(), b"\n", &length, value.as_bytes(), b"\n"].concat()
    }

    #[test]
    fn an_event_is_an_entry_with_its_fields() {
        let (ours, daemon) = UnixDatagram::pair().unwrap();
        let subscriber = Registry::default().with(Journal::of(ours));
        let long = "x\u{fc}".repeat(100_000);
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(target: "frevo::session", user = %"ann\nPRIORITY=0", one.two = 3, "refused {}", 1);
            tracing::info!(target: "frevo::session", long, "too long for a datagram");
        });
        let entry = received(&daemon);
        for (name, value) in [
            ("PRIORITY", "4"),
            ("TARGET", "frevo::session"),
            ("SYSLOG_IDENTIFIER", "frevo"),
            ("MESSAGE", "refused 1"),
            ("F_USER", "ann\nPRIORITY=0"),
            ("F_ONE_TWO", "3"),
        ] {
            let field = field(name, value);
            assert!(entry.windows(field.len()).any(|part| part == field), "{name}");
        }
        let entry = received(&daemon);
        let cut = field("F_LONG", &("x\u{fc}".repeat(341) + "x"));
        assert!(entry.windows(cut.len()).any(|part| part == cut), "{}", entry.len());
    }
}
