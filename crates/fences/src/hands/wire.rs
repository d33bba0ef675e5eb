//! Requests and answers between a server and its hands: packets of JSON, with a descriptor for a
//! connection.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde_json::{Value, json};

use crate::limits::PACKET_BYTES;

/// A thing to do, about things of the set-up alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    /// Connects with the endpoint at this place.
    Dial(usize),
    /// Looks at the storage of a unit.
    Look(String),
    /// Has storage refuse an identity, by the text of [`Fence`](frevo_cluster::fence::Fence).
    Fence(String),
    /// Sets the addresses of a unit.
    Raise(String),
    /// Takes them away.
    Lower(String),
    /// Sets the limit, in nanoseconds of CLOCK_BOOTTIME. It has no answer.
    Until(Duration),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) act: Act,
}

/// The end of a request, with the text of an identity for [`Act::Look`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) id: u64,
    pub(super) end: Result<String, String>,
}

impl Request {
    pub(super) fn to_text(&self) -> String {
        let (word, value) = match &self.act {
            Act::Dial(at) => ("dial", json!(at)),
            Act::Look(unit) => ("look", json!(unit)),
            Act::Fence(fence) => ("fence", json!(fence)),
            Act::Raise(unit) => ("raise", json!(unit)),
            Act::Lower(unit) => ("lower", json!(unit)),
            Act::Until(limit) => {
                ("until", json!(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)))
            }
        };
        json!({ "id": self.id, "act": word, "of": value }).to_string()
    }

    pub(super) fn parse(packet: &[u8]) -> Option<Self> {
        let object: Value = serde_json::from_slice(packet).ok()?;
        let (id, of) = (object.get("id")?.as_u64()?, object.get("of")?);
        let text = || of.as_str().map(String::from);
        let act = match object.get("act")?.as_str()? {
            "dial" => Act::Dial(usize::try_from(of.as_u64()?).ok()?),
            "look" => Act::Look(text()?),
            "fence" => Act::Fence(text()?),
            "raise" => Act::Raise(text()?),
            "lower" => Act::Lower(text()?),
            "until" => Act::Until(Duration::from_nanos(of.as_u64()?)),
            _ => return None,
        };
        Some(Self { id, act })
    }
}

impl Answer {
    pub(super) fn to_text(&self) -> String {
        match &self.end {
            Ok(text) => json!({ "id": self.id, "done": text }),
            Err(why) => json!({ "id": self.id, "why": why }),
        }
        .to_string()
    }

    pub(super) fn parse(packet: &[u8]) -> Option<Self> {
        let object: Value = serde_json::from_slice(packet).ok()?;
        let text = |name| object.get(name).and_then(Value::as_str).map(String::from);
        let end = match text("done") {
            Some(done) => Ok(done),
            None => Err(text("why")?),
        };
        Some(Self { id: object.get("id")?.as_u64()?, end })
    }
}

/// Makes a socket for packets: the server's end, and that of the process.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Sends a packet, with a descriptor.
pub(super) fn send(socket: BorrowedFd<'_>, text: &str, passed: Option<&OwnedFd>) -> io::Result<()> {
    // The socket has room for all answers that can be under way.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let Some(passed) = passed else {
        // The filter of a server's system calls has this call, and not the other one.
        rustix::net::send(socket, text.as_bytes(), flags)?;
        return Ok(());
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let passed = [passed.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&passed));
    sendmsg(socket, &[IoSlice::new(text.as_bytes())], &mut ancillary, flags)?;
    Ok(())
}

/// A packet, and the descriptor with it.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) bytes: Vec<u8>,
    pub(super) passed: Option<OwnedFd>,
}

/// Receives a packet. None at the end of the socket.
pub(super) fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<Packet>> {
    let mut bytes = vec![0; PACKET_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.bytes == 0 {
        return Ok(None);
    }
    bytes.truncate(received.bytes);
    let passed = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(Some(Packet { bytes, passed }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_have_texts() {
        let acts = [
            Act::Dial(2),
            Act::Look("a b".into()),
            Act::Fence("fuse 51".into()),
            Act::Raise("address 192.0.2.20".into()),
            Act::Lower("\"x\\".into()),
            Act::Until(Duration::from_nanos(123_456_789_012)),
        ];
        for act in acts {
            let request = Request { id: 7, act };
            assert_eq!(Request::parse(request.to_text().as_bytes()), Some(request));
        }
        for end in [Ok("fuse 51".into()), Ok(String::new()), Err("no".into())] {
            let answer = Answer { id: u64::MAX, end };
            assert_eq!(Answer::parse(answer.to_text().as_bytes()), Some(answer));
        }
        for wrong in
            ["", "{}", "x", r#"{"id":1,"act":"run","of":"sh"}"#, r#"{"id":1,"act":"dial","of":-1}"#]
        {
            assert_eq!(Request::parse(wrong.as_bytes()), None, "{wrong}");
            assert_eq!(Answer::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
