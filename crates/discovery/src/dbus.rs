//! The little of D-Bus that Frevo takes: calls to a bus, and their replies. On the system bus Avahi
//! registers services; on that of a session the Secret Service keeps passwords.

mod marshal;

use std::io::{self, ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use crate::limits::{BUS_MESSAGE_BYTES, BUS_SIGNALS};
pub use marshal::{Marshal, Unmarshal};

/// The socket of the system bus.
const SOCKET: &str = "/run/dbus/system_bus_socket";

/// Time for a reply of the bus.
const REPLY_TIME: Duration = Duration::from_secs(5);

const BUS: &str = "org.freedesktop.DBus";

/// Types of messages.
const CALL: u8 = 1;
const RETURN: u8 = 2;
const ERROR: u8 = 3;
const SIGNAL: u8 = 4;
/// The flag of a call that starts no service.
const NO_AUTO_START: u8 = 2;

/// Fields of a header.
const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const REPLY_SERIAL: u8 = 5;
const DESTINATION: u8 = 6;
const SIGNATURE: u8 = 8;

/// The arguments of a call.
#[derive(Debug, Default)]
pub struct Body {
    signature: String,
    bytes: Vec<u8>,
}

impl Body {
    /// Arguments of the types of `signature`, which `fill` writes.
    pub fn of(signature: &str, fill: impl FnOnce(&mut Marshal)) -> Self {
        let mut arguments = Marshal::default();
        fill(&mut arguments);
        Self { signature: signature.to_owned(), bytes: arguments.bytes }
    }

    /// The types of the arguments.
    #[cfg(test)]
    pub(crate) fn signature(&self) -> &str {
        &self.signature
    }

    pub(crate) fn int32(&mut self, value: i32) -> &mut Self {
        self.signature.push('i');
        put_u32(&mut self.bytes, value.cast_unsigned());
        self
    }

    pub(crate) fn uint32(&mut self, value: u32) -> &mut Self {
        self.signature.push('u');
        put_u32(&mut self.bytes, value);
        self
    }

    pub(crate) fn uint16(&mut self, value: u16) -> &mut Self {
        self.signature.push('q');
        align(&mut self.bytes, 2);
        self.bytes.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn string(&mut self, value: &str) -> &mut Self {
        self.signature.push('s');
        put_string(&mut self.bytes, value);
        self
    }

    pub(crate) fn byte_arrays(&mut self, values: &[Vec<u8>]) -> &mut Self {
        self.signature.push_str("aay");
        let mut inner = Vec::new();
        for value in values {
            put_u32(&mut inner, length(value));
            inner.extend(value);
        }
        // The inner array begins at a multiple of four, as it did when it was made alone, so its
        // padding is still right.
        put_u32(&mut self.bytes, length(&inner));
        self.bytes.extend(inner);
        self
    }
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

fn align(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

fn put_u32(bytes: &mut Vec<u8>, value: u32) {
    align(bytes, 4);
    bytes.extend(value.to_le_bytes());
}

fn put_string(bytes: &mut Vec<u8>, value: &str) {
    put_u32(bytes, length(value.as_bytes()));
    bytes.extend(value.as_bytes());
    bytes.push(0);
}

/// A field of a header: its code and a text of the type `kind`.
fn put_field(bytes: &mut Vec<u8>, code: u8, kind: u8, value: &str) {
    align(bytes, 8);
    bytes.extend([code, 1, kind, 0]);
    if kind == b'g' {
        bytes.push(u8::try_from(value.len()).unwrap_or(u8::MAX));
        bytes.extend(value.as_bytes());
        bytes.push(0);
    } else {
        put_string(bytes, value);
    }
}

/// A method of an object on the bus.
#[derive(Debug, Clone, Copy)]
pub struct Method<'a> {
    /// The name of the program on the bus.
    pub destination: &'a str,
    /// The path of the object.
    pub path: &'a str,
    /// The interface that has the method.
    pub interface: &'a str,
    /// The name of the method.
    pub member: &'a str,
}

/// A message that calls a method.
fn call_message(serial: u32, flags: u8, method: Method<'_>, body: &Body) -> Vec<u8> {
    let Method { destination, path, interface, member } = method;
    let mut fields = Vec::new();
    put_field(&mut fields, PATH, b'o', path);
    put_field(&mut fields, DESTINATION, b's', destination);
    put_field(&mut fields, INTERFACE, b's', interface);
    put_field(&mut fields, MEMBER, b's', member);
    if !body.signature.is_empty() {
        put_field(&mut fields, SIGNATURE, b'g', &body.signature);
    }
    let mut message = vec![b'l', CALL, flags, 1];
    put_u32(&mut message, length(&body.bytes));
    put_u32(&mut message, serial);
    put_u32(&mut message, length(&fields));
    // The fields begin at offset 16, a multiple of eight, so their padding is right in the message,
    // too.
    message.extend(fields);
    align(&mut message, 8);
    message.extend(&body.bytes);
    message
}

/// A connection to a bus.
#[derive(Debug)]
pub struct Bus {
    stream: UnixStream,
    serial: u32,
    /// Flags of the calls.
    flags: u8,
    /// Signals that came while a reply was awaited: the latest ones.
    signals: Vec<Reply>,
}

/// The address of the bus of this user's session: DBUS_SESSION_BUS_ADDRESS, else the bus in
/// XDG_RUNTIME_DIR.
fn session_address() -> Option<SocketAddr> {
    let set = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    match set("DBUS_SESSION_BUS_ADDRESS") {
        Some(addresses) => addresses.split(';').find_map(unix_address),
        None => SocketAddr::from_pathname(format!("{}/bus", set("XDG_RUNTIME_DIR")?)).ok(),
    }
}

/// The socket of an address such as `unix:path=/run/user/1000/bus,guid=0123`.
fn unix_address(address: &str) -> Option<SocketAddr> {
    let keys = address.strip_prefix("unix:")?.split(',');
    keys.filter_map(|key| key.split_once('=')).find_map(|(key, value)| match key {
        "path" => SocketAddr::from_pathname(value).ok(),
        "abstract" => SocketAddr::from_abstract_name(value).ok(),
        _ => None,
    })
}

impl Bus {
    /// Connects as the user of this process.
    pub(crate) fn system() -> io::Result<Self> {
        Self::connect(&SocketAddr::from_pathname(SOCKET)?, NO_AUTO_START)
    }

    /// Connects to the bus of this user's session, whose calls start services.
    ///
    /// # Errors
    /// `NotFound` without a session that has a bus, and those of the connection.
    pub fn session() -> io::Result<Self> {
        let none = || io::Error::new(ErrorKind::NotFound, "the session has no D-Bus");
        Self::connect(&session_address().ok_or_else(none)?, 0)
    }

    fn connect(address: &SocketAddr, flags: u8) -> io::Result<Self> {
        let mut stream = UnixStream::connect_addr(address)?;
        stream.set_read_timeout(Some(REPLY_TIME))?;
        stream.set_write_timeout(Some(REPLY_TIME))?;
        // EXTERNAL without an identity makes the bus take the user from the credentials of the
        // socket.
        stream.write_all(b"\0AUTH EXTERNAL\r\nDATA\r\n")?;
        let mut answered = Vec::new();
        while !answered.ends_with(b"\r\n") || !answered.windows(3).any(|three| three == b"OK ") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            answered.extend(byte);
            if answered.len() > 512 || answered.starts_with(b"REJECTED") {
                return Err(io::Error::new(ErrorKind::PermissionDenied, "the bus refuses us"));
            }
        }
        stream.write_all(b"BEGIN\r\n")?;
        let mut bus = Self { stream, serial: 0, flags, signals: Vec::new() };
        bus.call(BUS, "/org/freedesktop/DBus", BUS, "Hello", &Body::default())?;
        Ok(bus)
    }

    /// The name of the process that owns `name`.
    ///
    /// # Errors
    /// None does.
    pub(crate) fn owner(&mut self, name: &str) -> io::Result<String> {
        let mut body = Body::default();
        body.string(name);
        self.call(BUS, "/org/freedesktop/DBus", BUS, "GetNameOwner", &body)
    }

    /// Calls a method, and returns the string or path that it returns, or an empty one.
    ///
    /// # Errors
    /// Those of the connection, and the error that the method returns.
    pub fn call(
        &mut self,
        destination: &str,
        path: &str,
        interface: &str,
        member: &str,
        body: &Body,
    ) -> io::Result<String> {
        let reply = self.ask(Method { destination, path, interface, member }, body)?;
        Ok(reply.string().unwrap_or_default())
    }

    /// Calls a method, and returns its reply.
    ///
    /// # Errors
    /// Those of the connection, and the error that the method returns.
    pub fn ask(&mut self, method: Method<'_>, body: &Body) -> io::Result<Reply> {
        self.serial += 1;
        let message = call_message(self.serial, self.flags, method, body);
        self.stream.write_all(&message)?;
        loop {
            let reply = Reply::read(&mut self.stream)?;
            if reply.serial != Some(self.serial) {
                if reply.kind == SIGNAL {
                    self.signals.truncate(BUS_SIGNALS - 1);
                    self.signals.insert(0, reply);
                }
                continue;
            }
            return match reply.kind {
                RETURN => Ok(reply),
                ERROR => {
                    let text = reply.string().unwrap_or_default();
                    Err(io::Error::other(format!("{}: {text}", method.member)))
                }
                _ => Err(ErrorKind::InvalidData.into()),
            };
        }
    }

    /// Waits at most for `time` for a signal of this path, of those that were asked for with
    /// AddMatch.
    ///
    /// # Errors
    /// Those of the connection; `WouldBlock` when no signal comes in time.
    pub fn signal(&mut self, path: &str, time: Duration) -> io::Result<Reply> {
        let is_wanted = |signal: &Reply| signal.kind == SIGNAL && signal.path == path;
        if let Some(at) = self.signals.iter().position(is_wanted) {
            return Ok(self.signals.remove(at));
        }
        self.stream.set_read_timeout(Some(time))?;
        let found = loop {
            match Reply::read(&mut self.stream) {
                Ok(signal) if is_wanted(&signal) => break Ok(signal),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
        };
        self.stream.set_read_timeout(Some(REPLY_TIME))?;
        found
    }
}

/// A message from the bus.
#[derive(Debug)]
pub struct Reply {
    kind: u8,
    /// The serial number of the call.
    serial: Option<u32>,
    /// The object of a signal.
    path: String,
    signature: String,
    body: Vec<u8>,
}

impl Reply {
    /// The arguments, if their types are those of `signature`.
    pub fn arguments(&self, signature: &str) -> Option<Unmarshal<'_>> {
        (self.signature == signature).then(|| Unmarshal::new(&self.body))
    }

    fn read(stream: &mut impl Read) -> io::Result<Self> {
        let mut head = [0; 16];
        stream.read_exact(&mut head)?;
        let [b'l', kind, _, _, ..] = head else { return Err(ErrorKind::InvalidData.into()) };
        let body = number(&head, 4).unwrap_or(usize::MAX);
        let fields = number(&head, 12).unwrap_or(usize::MAX);
        if body > BUS_MESSAGE_BYTES || fields > BUS_MESSAGE_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut rest = vec![0; fields.next_multiple_of(8) + body];
        stream.read_exact(&mut rest)?;
        let body = rest.split_off(fields.next_multiple_of(8));
        rest.truncate(fields);
        let (path, signature) = Default::default();
        let mut reply = Self { kind, serial: None, path, signature, body };
        reply.read_fields(&rest).ok_or(ErrorKind::InvalidData)?;
        Ok(reply)
    }

    fn read_fields(&mut self, fields: &[u8]) -> Option<()> {
        let mut at = 0_usize;
        while at < fields.len() {
            let [code, 1, kind, 0] = *fields.get(at..)?.first_chunk()? else { return None };
            at += 4;
            match kind {
                b'u' => {
                    let value = number(fields, at)?;
                    if code == REPLY_SERIAL {
                        self.serial = u32::try_from(value).ok();
                    }
                    at += 4;
                }
                b'g' => {
                    let length = usize::from(*fields.get(at)?);
                    let text = fields.get(at + 1..at + 1 + length)?;
                    if code == SIGNATURE {
                        self.signature = String::from_utf8(text.to_vec()).ok()?;
                    }
                    at += length + 2;
                }
                b's' | b'o' => {
                    let length = number(fields, at)?;
                    let text = fields.get(at + 4..at.checked_add(4)?.checked_add(length)?)?;
                    if code == PATH {
                        self.path = String::from_utf8(text.to_vec()).ok()?;
                    }
                    at = at.checked_add(length)?.checked_add(5)?;
                }
                _ => return None,
            }
            at = at.checked_next_multiple_of(8)?;
        }
        Some(())
    }

    /// The first value, if it is a string or a path.
    fn string(&self) -> Option<String> {
        if !self.signature.starts_with(['s', 'o']) {
            return None;
        }
        let length = number(&self.body, 0)?;
        let text = self.body.get(4..length.checked_add(4)?)?;
        String::from_utf8(text.to_vec()).ok()
    }
}

/// The number of four bytes at `at`.
fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let four = bytes.get(at..)?.first_chunk::<4>()?;
    usize::try_from(u32::from_le_bytes(*four)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A return of `text`, as a bus writes it.
    fn returned(serial: u32, text: &str) -> Vec<u8> {
        let mut fields = vec![REPLY_SERIAL, 1, b'u', 0];
        fields.extend(serial.to_le_bytes());
        put_field(&mut fields, SIGNATURE, b'g', "s");
        let mut body = Vec::new();
        put_string(&mut body, text);
        let mut message = vec![b'l', RETURN, 0, 1];
        put_u32(&mut message, length(&body));
        put_u32(&mut message, 7);
        put_u32(&mut message, length(&fields));
        message.extend(fields);
        align(&mut message, 8);
        message.extend(body);
        message
    }

    #[test]
    fn a_reply_is_read_and_none_is_trusted() {
        let good = returned(3, ":1.7");
        let reply = Reply::read(&mut &*good).unwrap();
        assert_eq!(
            (reply.kind, reply.serial, reply.string()),
            (RETURN, Some(3), Some(":1.7".into()))
        );
        for cut in 0..good.len() {
            assert!(Reply::read(&mut good.get(..cut).unwrap()).is_err(), "{cut}");
        }
        for at in 0..good.len() {
            for value in [0, 1, 0x7F, 0xFF] {
                let mut wrong = good.clone();
                wrong[at] = value;
                if let Ok(reply) = Reply::read(&mut &*wrong) {
                    let _ = reply.string();
                }
            }
        }
        let large = [&good[..4], &[0xFF; 12]].concat();
        assert!(Reply::read(&mut &*large).is_err());
    }

    #[test]
    fn a_call_is_aligned() {
        let mut body = Body::default();
        body.uint16(9).string("x").byte_arrays(&[b"ab".to_vec(), b"c".to_vec()]);
        assert_eq!(body.signature(), "qsaay");
        let expected = [
            &[9, 0, 0, 0, 1, 0, 0, 0, b'x', 0, 0, 0][..],
            &[13, 0, 0, 0, 2, 0, 0, 0, b'a', b'b', 0, 0, 1, 0, 0, 0, b'c'],
        ]
        .concat();
        assert_eq!(body.bytes, expected);
        let method = Method { destination: "a.b", path: "/", interface: "a.b", member: "C" };
        let message = call_message(1, NO_AUTO_START, method, &body);
        assert_eq!(message.len() % 8, body.bytes.len() % 8);
        assert_eq!(message.get(..4), Some(&[b'l', CALL, NO_AUTO_START, 1][..]));
    }

    #[test]
    fn arguments_come_back() {
        let body = Body::of("sa{sv}(oay)ao", |w| {
            w.string("x").array(8, |w| {
                for (key, value) in [("a", "b"), ("long", "longer")] {
                    w.align(8).string(key).variant("s").string(value);
                }
            });
            w.align(8).string("/o").byte_array(b"123");
            w.array(4, |w| {
                w.string("/a").string("/bcd");
            });
        });
        let mut r = Unmarshal::new(&body.bytes);
        assert_eq!((r.string(), r.uint32()), (Some("x"), Some(47)));
        for (key, value) in [("a", "b"), ("long", "longer")] {
            r.align(8).unwrap();
            assert_eq!((r.string(), r.variant(), r.string()), (Some(key), Some("s"), Some(value)));
        }
        r.align(8).unwrap();
        assert_eq!((r.string(), r.byte_array()), (Some("/o"), Some(&b"123"[..])));
        assert_eq!(r.strings(), Some(vec!["/a".to_owned(), "/bcd".to_owned()]));
        assert_eq!(r.uint32(), None);
    }

    #[test]
    fn addresses_name_sockets() {
        let path = |text: &str| {
            unix_address(text).and_then(|at| at.as_pathname().map(std::path::Path::to_path_buf))
        };
        assert_eq!(path("unix:path=/run/bus,guid=1"), Some("/run/bus".into()));
        assert_eq!(path("unix:guid=1,path=/b"), Some("/b".into()));
        assert!(unix_address("unix:abstract=x").is_some_and(|at| at.as_abstract_name().is_some()));
        assert!(path("tcp:host=a").is_none() && path("").is_none() && path("unix:").is_none());
    }
}
