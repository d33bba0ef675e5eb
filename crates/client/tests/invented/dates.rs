//! Dates of small files, on servers that keep them while the file is written and on
//! servers that do not.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::dialed;
use crate::evil;

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dialed::{ToEvil, on_paused_clock};
use evil::{Act, Asked, Manners};
use frevo_client::internal::file_time;
use frevo_client::{Client, Credentials, Options, ServerName};
use frevo_wire::codec::Writer;
use frevo_wire::command::close;
use frevo_wire::dtyp::FileTime;
use frevo_wire::header::HEADER_LEN;
use frevo_wire::{Command, Status};
use parking_lot::Mutex;

/// The server's time, which stands still.
const NOW: FileTime = FileTime(134_000_000_000_000_000);

/// One file at a time, and what was done to it.
#[derive(Default)]
struct Disk {
    sticky: bool,
    written: FileTime,
    set: bool,
    said: Vec<Command>,
    dates: Vec<FileTime>,
}

impl Disk {
    fn on(&mut self, asked: &Asked<'_>) -> Act {
        let command = asked.header.command;
        match command {
            Command::CREATE => self.set = false,
            Command::SET_INFO => {
                let last = asked.message.len() - 40 + 16;
                let ticks = asked.message[last..last + 8].try_into().unwrap();
                self.written = FileTime(u64::from_le_bytes(ticks));
                self.set = true;
            }
            Command::WRITE if !(self.sticky && self.set) => self.written = NOW,
            Command::WRITE => {}
            Command::CLOSE => {
                self.said.push(command);
                self.dates.push(self.written);
                let flags = close::Request::parse(asked.message).unwrap().flags;
                let closed = close::Response {
                    flags,
                    last_write_time: if flags.0 == 0 { FileTime(0) } else { self.written },
                    ..close::Response::default()
                };
                let mut message = vec![0; HEADER_LEN];
                closed.encode(&mut Writer::from(&mut message, 0));
                return Act::Body(message[HEADER_LEN..].to_vec());
            }
            _ => return Act::Honest,
        }
        self.said.push(command);
        Act::Honest
    }
}

/// Writes three files, the second of them empty; what was said of each, and the
/// date that each bore at last.
fn three_files(sticky: bool) -> (Vec<Vec<Command>>, Vec<FileTime>) {
    let disk = Arc::new(Mutex::new(Disk { sticky, ..Disk::default() }));
    let seen = Arc::clone(&disk);
    let script = move |asked: &Asked<'_>| seen.lock().on(asked);
    on_paused_clock(async {
        let client =
            Client::with_dialer(Options::default(), ToEvil::new(Manners::default(), script));
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new("evil"), user).await.unwrap();
        let share = session.share("data").await.unwrap();
        let mut said = Vec::new();
        let mut dates = Vec::new();
        for data in [&b"one"[..], b"", b"three"] {
            share.write_dated("file", data, Some(date())).await.unwrap();
            let mut disk = disk.lock();
            said.push(std::mem::take(&mut disk.said));
            dates.push(*std::mem::take(&mut disk.dates).last().unwrap());
        }
        (said, dates)
    })
}

fn date() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)
}

#[test]
fn a_server_that_keeps_dates_gets_them_first() {
    let (said, dates) = three_files(true);
    use Command as C;
    assert_eq!(said[0], [C::CREATE, C::SET_INFO, C::WRITE, C::CLOSE]);
    assert_eq!(said[1], [C::CREATE, C::SET_INFO, C::CLOSE]);
    assert_eq!(said[2], said[0]);
    assert_eq!(dates, [file_time(date()); 3]);
}

#[test]
fn a_server_that_does_not_is_found_out_and_the_date_is_set_again() {
    let (said, dates) = three_files(false);
    use Command as C;
    let first = [C::CREATE, C::SET_INFO, C::WRITE, C::CLOSE, C::CREATE, C::SET_INFO, C::CLOSE];
    assert_eq!(said[0], first);
    assert_eq!(said[1], [C::CREATE, C::SET_INFO, C::CLOSE]);
    assert_eq!(said[2], [C::CREATE, C::WRITE, C::SET_INFO, C::CLOSE]);
    assert_eq!(dates, [file_time(date()); 3]);
}

#[test]
fn the_date_is_the_first_errors_too() {
    let script = |asked: &Asked<'_>| match asked.header.command {
        Command::SET_INFO => Act::Refused(Status::ACCESS_DENIED),
        _ => Act::Honest,
    };
    on_paused_clock(async {
        let client =
            Client::with_dialer(Options::default(), ToEvil::new(Manners::default(), script));
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new("evil"), user).await.unwrap();
        let share = session.share("data").await.unwrap();
        let error = share.write_dated("file", b"one", Some(date())).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    });
}
