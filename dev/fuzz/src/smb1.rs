//! Messages of a server that speaks only SMB1, and datagrams of the NetBIOS name service.

use frevo_smb1::find::{Level, Search, SearchId};
use frevo_smb1::info::{self, AllInfo, Allocation, DosZone, FsLevel, QueryLevel, Subject, UnixInfo};
use frevo_smb1::negotiate::{self, Negotiated};
use frevo_smb1::open::{Fid, OldAccess, OldOpen, Opened};
use frevo_smb1::session::{self, SetUp};
use frevo_smb1::{Answer, Charset, CodePage, Machine, Received, Request, Terms, data, netbios, shares, tree};

/// Most bytes that the READ of an input asks for.
const ASKED: u32 = 0x1_0010;

/// The forms of a connection that the first byte chooses from.
const CHARSETS: [Charset; 2] = [Charset::Unicode, Charset::Oem(CodePage::Cp437)];

/// Answers to one request of each kind, which the first two bytes choose, each with its length before it.
pub fn smb1(data: &[u8]) {
    let Some((&[kind, form], rest)) = data.split_first_chunk() else { return };
    let charset = CHARSETS[usize::from(form & 1)];
    datagrams(rest);
    let Some(request) = request(kind, charset) else { return };
    let mut machine = Machine::new(form & 2 == 0);
    let terms = Terms { charset, is_extended: form & 2 == 0, requests: 4 };
    machine.negotiated(terms, false);
    let Ok(sent) = machine.send(1, &request) else { return };
    let mut rest = rest;
    while let Some((length, behind)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length)).min(behind.len());
        let (bytes, behind) = behind.split_at(length);
        rest = behind;
        // The header is that of a right answer, but for what the input changes in its flags.
        let mut message = sent.head[4..36].to_vec();
        message[9] |= 0x80;
        if let Some((flags, bytes)) = bytes.split_first() {
            message[5] = flags & 3;
            message.extend_from_slice(bytes);
        }
        match machine.receive(message) {
            Ok(Received::Answer(mid, answer)) => {
                assert_eq!(mid, sent.mid);
                assert!(machine.has_room());
                parsed(kind, charset, &answer);
                return;
            }
            Ok(Received::Part | Received::Notice) => {}
            Err(fault) => return drop(fault.to_string()),
        }
    }
}

fn request(kind: u8, charset: Charset) -> Option<Request<'static>> {
    let search = search(kind, charset);
    match kind % 12 {
        0 => Some(negotiate::request()),
        1 => Some(session::logoff()),
        2 => tree::connect(charset, "s", "share", &[]).ok(),
        3 => info::query(charset, Subject::Open(Fid(1)), QueryLevel::ALL).ok(),
        4 => info::query_fs(charset, FsLevel::UNIX).ok(),
        5 | 6 => search.first("\\*").ok(),
        7 | 8 => search.next(SearchId(1), "a").ok(),
        9 => Some(data::read(Fid(1), 0, ASKED)),
        10 => Some(data::write(Fid(1), 0, &[0; 8])),
        _ => {
            let (name, access) = ("\\a", OldAccess::READ);
            let old = OldOpen { name, access, attributes: 0, share_access: 1, disposition: 1 };
            old.request(charset).ok()
        }
    }
}

fn search(kind: u8, charset: Charset) -> Search {
    let level = if kind.is_multiple_of(2) { Level::Standard } else { Level::BothDirectory };
    Search { charset, level, zone: DosZone { minutes: i16::from(kind) - 128 } }
}

/// Reads an answer in each form that it may have.
fn parsed(kind: u8, charset: Charset, answer: &Answer) {
    let Ok(response) = answer.response() else { panic!("it was parsed before") };
    let (search, zone) = (search(kind, charset), DosZone { minutes: 60 });
    let _ = Negotiated::parse(&response).map(|found| Terms::of(&found, CodePage::Cp850));
    let _ = SetUp::parse(&response, true);
    let _ = SetUp::parse(&response, false);
    let _ = tree::service(&response);
    let _ = Opened::parse(&response);
    let _ = Opened::parse_old(&response, zone);
    if let Ok(range) = data::read_range(&response, ASKED) {
        assert!(u32::try_from(range.len()).expect("a length") <= ASKED);
        assert!(answer.message().get(range).is_some());
    }
    if let Ok(count) = data::written(&response, 8) {
        assert!(count <= 8);
    }
    let results = answer.results();
    let _ = AllInfo::parse(&results.data);
    let _ = AllInfo::parse_standard(&results.data, zone);
    let _ = Allocation::parse(&results.data);
    let _ = UnixInfo::parse(&results.data).map(|found| found.set_large_io(charset));
    let _ = shares::listed(results, CodePage::Cp850);
    let pages = [search.first_found(results).map(|(_, page)| page), search.next_found(results)];
    for page in pages.into_iter().flatten() {
        assert!(page.is_end || !page.entries.is_empty(), "a search that never ends");
        for entry in page.entries {
            // A name that came from the server can be sent back.
            assert!(search.next(SearchId(1), &entry.name).is_ok());
        }
    }
}

fn datagrams(packet: &[u8]) {
    let id = packet.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
    let _ = netbios::addresses(packet, id);
    if let Ok(Some(name)) = netbios::server_name(packet, id) {
        assert!(name.len() <= 15);
    }
    if let Some(prefix) = packet.first_chunk() {
        let _ = netbios::Packet::parse(*prefix);
    }
}
