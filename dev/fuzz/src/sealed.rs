//! A sealed session whose messages come from the input: a peer that has the keys and seals
//! anything.

use std::rc::Rc;

use frevo_server::settings::Encryption;
use frevo_wire::header::HEADER_LEN;
use frevo_wire::{Command, FileId, Status};

use crate::arena::{Inbox, in_arena};
use crate::choices::Choices;
use crate::server::client::draft::{Draft, seal};
use crate::server::client::files::{self, Want};
use crate::server::client::logon::Setup;
use crate::server::client::{Offer, Settings, settings};

/// Most messages of one input.
const MESSAGES: usize = 64;

/// Where the requests of a command have their FileId, counted from the header.
const fn file_id_at(command: Command) -> Option<usize> {
    Some(match command {
        Command::CLOSE | Command::FLUSH | Command::LOCK | Command::IOCTL => 72,
        Command::CHANGE_NOTIFY | Command::QUERY_DIRECTORY => 72,
        Command::READ | Command::WRITE | Command::SET_INFO => 80,
        Command::QUERY_INFO => 88,
        _ => return None,
    })
}

/// Messages, each a command, a byte of how, and a body behind its length. Ids are put
/// where they belong unless the second byte says otherwise.
pub fn sealed_stream(data: &[u8]) {
    let settings = Settings { encryption: Encryption::Required, ..settings() };
    in_arena(settings, async |arena| {
        let Some(mut peer) = arena.connect(None, &Offer::default()).await else { return };
        let Ok(logon) = peer.try_log_on(Setup::of("ann")).await else { return };
        let Ok(mount) = peer.try_mount(&logon, "data").await else { return };
        let mut handles = Vec::new();
        for want in [Want::file("file"), Want::directory("dir")] {
            let reply = peer.create(&mount, &want).await;
            handles.push(files::file_id(&reply));
        }
        let logons = vec![Rc::clone(&logon)];
        let mut inbox = Inbox::default();
        let mut choices = Choices::new(data);
        let mut count = 0;
        while !choices.is_over() && count < MESSAGES && !inbox.is_over {
            count += 1;
            let command = Command(u16::from(choices.u8() % 20));
            let how = choices.u8();
            let long = usize::from(choices.u8());
            // Lengths above 0x80 are multiplied, so that a long input has messages of any length.
            let body = choices.take(if long >= 0x80 { (long - 0x80) << 8 } else { long });
            let mut draft = Draft::new(command).body(body);
            if how & 0x80 == 0 {
                draft = mount.put(draft);
            }
            peer.stamp(&mut draft);
            let mut message = draft.bytes();
            if how & 0x40 == 0 {
                put_file_id(command, &mut message, handles[usize::from(how & 1)]);
            }
            if how & 0x20 != 0 {
                message.truncate(HEADER_LEN + body.len() / 2);
            }
            if how & 0x30 == 0x30 {
                // This kind of message is sent as it is, without an SMB2 header.
                message = body.to_vec();
            }
            let frame = seal(&message, &logon, logon.id);
            peer.send_frame(&frame).await;
            for answer in inbox.answers(&peer.stream, &logons).await {
                let header = answer.header;
                if header.command == Command::CREATE && header.status == Status::SUCCESS {
                    let at = usize::from(how & 1);
                    let response = frevo_wire::command::create::Response::parse(&answer.message);
                    handles[at] = response.expect("an answer to CREATE").file_id;
                }
            }
        }
    });
}

fn put_file_id(command: Command, message: &mut [u8], file: FileId) {
    let Some(at) = file_id_at(command) else { return };
    if let Some(field) = message.get_mut(at..at + 16) {
        field[..8].copy_from_slice(&file.persistent.to_le_bytes());
        field[8..].copy_from_slice(&file.volatile.to_le_bytes());
    }
}
