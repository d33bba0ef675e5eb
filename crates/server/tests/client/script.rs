//! A client that does what bytes tell it: valid requests, mutated ones, noise.
//! The same bytes always do the same. Property tests and the fuzzer both bring
//! the bytes.

use std::rc::Rc;
use std::time::Duration;

use frevo_wire::command::create::{CreateDisposition, CreateOptions, ShareAccess};
use frevo_wire::command::lock::LockFlags;
use frevo_wire::create_context::{CreateContexts, name};
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::file_id::FileId;
use frevo_wire::{Command, HeaderFlags, Status};
use tokio::time::timeout;

use super::draft::{Draft, Reply, Via, seal, sign_anything};
use super::files::{self, Mount, Want, utf16};
use super::logon::{Logon, Setup, initiator};
use super::negotiate::{ALL_DIALECTS, Offer};
use super::peer::{Peer, async_id};
use super::world::World;

/// Most that one script does.
const STEPS: usize = 200;

/// Bytes as decisions. When they run out every further one is zero.
pub struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub const fn is_over(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                *first
            }
            None => 0,
        }
    }

    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    pub fn coin(&mut self) -> bool {
        self.byte().is_multiple_of(2)
    }

    pub fn one_in(&mut self, count: u8) -> bool {
        self.byte().is_multiple_of(count) && !self.is_over()
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub fn some(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.byte()).collect()
    }

    pub fn u32(&mut self) -> u32 {
        let bytes = self.some(4);
        u32::from_le_bytes(bytes.try_into().unwrap())
    }

    /// A number of the kind that goes wrong.
    pub fn number(&mut self) -> u64 {
        match self.byte() % 12 {
            0 => 0,
            1 => 1,
            2 => u64::from(self.byte()),
            3 => u64::from(self.u32()),
            4 => u64::MAX,
            5 => u64::MAX - u64::from(self.byte()),
            6 => i64::MAX as u64,
            7 => i64::MAX as u64 - u64::from(self.byte()),
            8 => 1 << (self.byte() % 64),
            9 => (1 << (self.byte() % 64)) - 1,
            10 => 65_536 + u64::from(self.byte()) - 128,
            _ => u64::from(self.u32()) << 32 | u64::from(self.u32()),
        }
    }
}

/// One connection and what the client knows to be there.
struct Seat {
    peer: Peer,
    user: &'static str,
    mounts: Vec<Mount>,
    files: Vec<FileId>,
    /// Requests that wait: MessageId and AsyncId.
    waiting: Vec<(u64, u64)>,
    ended: bool,
}

/// Plays `bytes` against the server of `world`, and then asks a bystander
/// whether it still serves.
pub async fn play(world: &World, bytes: &[u8]) {
    play_while(world, bytes, |_| {}).await;
}

/// Plays `bytes`, and calls `meanwhile` with the number of each step.
pub async fn play_while(world: &World, bytes: &[u8], mut meanwhile: impl FnMut(usize)) {
    let mut bystander = world.connect();
    bystander.negotiate(&Offer::default()).await;
    let mut choices = Choices::new(bytes);
    let mut seats = Vec::new();
    let mut steps = 0;
    while !choices.is_over() && steps < STEPS {
        steps += 1;
        meanwhile(steps);
        seats.retain(|seat: &Seat| !seat.ended);
        if seats.len() < 3 && (seats.is_empty() || choices.one_in(24)) {
            let seat = take_seat(world, &mut choices, seats.first()).await;
            seats.push(seat);
            continue;
        }
        let at = choices.below(seats.len());
        let seat = &mut seats[at];
        act(seat, &mut choices).await;
        if !choices.one_in(4) {
            drain(seat).await;
        }
        if choices.one_in(64) {
            seats.swap_remove(at);
        }
    }
    bystander.expect_alive().await;
}

/// Connects and logs on: a session of its own, or a channel of the first's.
async fn take_seat(world: &World, choices: &mut Choices<'_>, first: Option<&Seat>) -> Seat {
    let mut peer = world.connect();
    peer.is_strict = false;
    let mut seat = |peer| Seat {
        peer,
        user: if choices.byte() % 4 == 3 { "bob" } else { "ann" },
        mounts: Vec::new(),
        files: Vec::new(),
        waiting: Vec::new(),
        ended: false,
    };
    let first = first.filter(|first| !first.ended && !first.mounts.is_empty());
    if let Some(first) = first
        && first.peer.terms().is_smb3()
    {
        peer.guid = first.peer.guid;
        let mut seat = seat(peer);
        seat.peer.negotiate(&Offer::only(first.peer.terms().dialect)).await;
        let mount = &first.mounts[0];
        let setup = Setup::binding(first.user, &mount.logon);
        if let Ok(bound) = seat.peer.try_log_on(setup).await {
            seat.mounts.push(mount.on(&bound));
            seat.files = first.files.clone();
        }
        return seat;
    }
    let mut seat = seat(peer);
    let dialect = choices.pick(&[Dialects::Three, Dialects::Three, Dialects::Any]);
    let offer = match dialect {
        Dialects::Three => Offer::default(),
        Dialects::Any => Offer::only(choices.pick(&ALL_DIALECTS)),
    };
    seat.peer.negotiate(&offer).await;
    let Ok(logon) = seat.peer.try_log_on(Setup::of(seat.user)).await else {
        // The server does not allow this dialect, so the logon failed and this client is done.
        seat.ended = true;
        return seat;
    };
    for share in ["data", "IPC$"] {
        // A failed tree connect (a limit is reached) is left out.
        seat.mounts.extend(seat.peer.try_mount(&logon, share).await.ok());
    }
    let Some(mount) = seat.mounts.first().cloned() else { return seat };
    for want in [Want::file("seed"), Want::directory("dir")] {
        let reply = seat.peer.create(&mount, &want).await;
        if reply.status() == Status::SUCCESS {
            seat.files.push(files::file_id(&reply));
        }
    }
    seat
}

#[derive(Clone, Copy)]
enum Dialects {
    Three,
    Any,
}

async fn act(seat: &mut Seat, choices: &mut Choices<'_>) {
    match choices.byte() % 16 {
        0 => noise(seat, choices).await,
        1 => cancel(seat, choices).await,
        2..=5 => {
            let count = 2 + choices.below(4);
            request(seat, choices, count).await;
        }
        _ => request(seat, choices, 1).await,
    }
}

/// A frame of anything, or half of one.
async fn noise(seat: &mut Seat, choices: &mut Choices<'_>) {
    let length = usize::from(choices.byte());
    let mut bytes = choices.some(length);
    match choices.byte() % 4 {
        0 => seat.peer.send_bytes(&bytes).await,
        1 => {
            bytes.splice(0..0, *b"\xFESMB\x40\0");
            seat.peer.send_frame(&bytes).await;
        }
        2 => {
            if let Some(mount) = seat.mounts.first().filter(|m| m.logon.keys.sealing.is_some()) {
                let frame = seal(&bytes, &mount.logon, mount.logon.id);
                seat.peer.send_frame(&frame).await;
            }
        }
        _ => seat.peer.send_frame(&bytes).await,
    }
}

async fn cancel(seat: &mut Seat, choices: &mut Choices<'_>) {
    let Some(mount) = seat.mounts.first().cloned() else { return };
    let (message_id, id) = match seat.waiting.is_empty() {
        true => (choices.number(), choices.number()),
        false => seat.waiting.swap_remove(choices.below(seat.waiting.len())),
    };
    let by_id = choices.coin();
    let draft = Peer::cancel(message_id, by_id.then_some(id), mount.logon.id);
    let frame = super::draft::pack(&[draft], mount.via());
    seat.peer.send_frame(&frame).await;
}

/// Sends a compound of `count` requests, perhaps mutated.
async fn request(seat: &mut Seat, choices: &mut Choices<'_>, count: usize) {
    let mount = match seat.mounts.len() {
        0 => None,
        len => Some(seat.mounts[choices.below(len)].clone()),
    };
    let mutations = choices.byte();
    let is_related = choices.coin();
    let mut messages = Vec::new();
    for at in 0..count {
        let mut draft = menu(&seat.files, choices, at > 0 && is_related);
        if let Some(mount) = &mount {
            draft = mount.put(draft);
        }
        if at > 0 && is_related {
            draft = draft.flags(HeaderFlags::RELATED_OPERATIONS);
        }
        seat.peer.stamp(&mut draft);
        let mut message = draft.bytes();
        if mutations.is_multiple_of(3) {
            mutate(&mut message, choices);
        }
        messages.push(message);
    }
    let last = messages.len() - 1;
    let via = match &mount {
        None => Via::Plain,
        Some(_) if mutations % 29 == 28 => Via::Plain,
        Some(mount) if mutations % 5 == 4 && mount.logon.keys.sealing.is_some() => {
            Via::Sealed(&mount.logon)
        }
        Some(mount) => mount.via(),
    };
    let mut chain = Vec::new();
    for (at, mut message) in messages.into_iter().enumerate() {
        if at != last {
            message.resize(message.len().next_multiple_of(8), 0);
            let next = u32::try_from(message.len()).unwrap();
            if let Some(field) = message.get_mut(20..24) {
                field.copy_from_slice(&next.to_le_bytes());
            }
        }
        if let Via::Signed(logon) = via {
            sign_anything(&mut message, logon);
        }
        chain.extend_from_slice(&message);
    }
    if mutations % 31 == 30 {
        mutate(&mut chain, choices);
    }
    let frame = match via {
        Via::Sealed(logon) => seal(&chain, logon, logon.id),
        _ => chain,
    };
    seat.peer.send_frame(&frame).await;
}

/// Changes a message where it hurts.
pub fn mutate(message: &mut Vec<u8>, choices: &mut Choices<'_>) {
    for _ in 0..=choices.below(3) {
        if message.is_empty() {
            return;
        }
        // One change of four is in the header, and three are in the body, where most rules apply.
        let header = 64.min(message.len());
        let span = if choices.one_in(4) { 0..header } else { header..message.len() };
        let at = span.start + choices.below(span.len());
        match choices.byte() % 6 {
            0 => {
                if let Some(byte) = message.get_mut(at) {
                    *byte ^= 1 << (choices.byte() % 8);
                }
            }
            1 => message.truncate(at),
            2 => {
                let count = choices.below(64);
                let bytes = choices.some(count);
                message.extend_from_slice(&bytes);
            }
            3 => {
                let bytes = choices.number().to_le_bytes();
                let width = choices.pick(&[1, 2, 4, 8]);
                if let Some(field) = message.get_mut(at..at + width) {
                    field.copy_from_slice(&bytes[..width]);
                }
            }
            4 => {
                if let Some(byte) = message.get_mut(at) {
                    *byte = choices.byte();
                }
            }
            _ => message.insert(at.min(message.len()), choices.byte()),
        }
    }
}

/// A request of any command, with values that are good more often than not.
pub fn menu(known: &[FileId], choices: &mut Choices<'_>, inherits: bool) -> Draft {
    let file = match known.len() {
        _ if inherits => files::PREVIOUS,
        0 => FileId::default(),
        len => known[choices.below(len)],
    };
    match choices.byte() % 24 {
        0..=4 => create(choices),
        5 => files::close_draft(file).patch(66, &[choices.byte() % 2, 0]),
        6 => files::read_draft(file, choices.number(), u32::from(choices.byte()) * 257),
        7 => {
            let length = choices.below(200);
            files::write_draft(file, choices.number() % (1 << 40), &choices.some(length))
        }
        8 => files::flush_draft(file),
        9 | 10 => lock(file, choices),
        11 | 12 => query_info(file, choices),
        13..=15 => set_info(file, choices),
        16 => query_directory(file, choices),
        17 => change_notify(file, choices),
        18 | 19 => ioctl(file, choices),
        20 => Draft::echo(),
        21 => oplock_break(file, choices),
        22 => session(choices),
        _ => tree(choices),
    }
}

const NAMES: [&str; 12] = [
    "seed",
    "dir",
    "dir\\inner",
    "other",
    "",
    "srvsvc",
    "wkssvc",
    "a\\b\\c",
    "..",
    "seed:s",
    "SEED",
    "long name with spaces.txt",
];

fn create(choices: &mut Choices<'_>) -> Draft {
    let mut want = Want::file(choices.pick(&NAMES));
    if choices.one_in(3) {
        want.access =
            AccessMask(choices.pick(&[0x1, 0x2, 0x10080, 0x12019F, 0x2000000, 0x80000000]));
        want.sharing = ShareAccess(u32::from(choices.byte()) % 9);
        want.disposition = CreateDisposition(u32::from(choices.byte()) % 7);
        want.options = CreateOptions(choices.pick(&[0, 1, 0x40, 0x1000, 0x1001, 0x200000, 2]));
        want.attributes = FileAttributes(choices.pick(&[0, 1, 2, 0x20, 0x80, 0x100]));
    }
    if choices.one_in(4) {
        let names = [
            name::ALSI,
            name::MXAC,
            name::QFID,
            name::EXTA,
            name::SECD,
            name::RQLS,
            name::DHNQ,
            name::DHNC,
            name::DH2Q,
            name::DH2C,
            name::TWRP,
            name::AAPL,
            name::POSIX,
        ];
        let name = choices.pick(&names);
        let length = choices.pick(&[0, 4, 8, 16, 32, 52, 60]);
        let data = choices.some(length);
        want.contexts = CreateContexts::build(&[(name, &data)]).as_bytes().to_vec();
    }
    want.draft()
}

fn lock(file: FileId, choices: &mut Choices<'_>) -> Draft {
    let flags = [1, 2, 4, 0x11, 0x12, 0x14, 0];
    let elements: Vec<_> = (0..1 + choices.below(3))
        .map(|_| {
            let offset = u64::from(choices.byte());
            let length = choices.number() >> (choices.byte() % 64);
            (offset, length, LockFlags(choices.pick(&flags)))
        })
        .collect();
    files::lock_draft(file, &elements)
}

fn put_id(body: &mut Vec<u8>, file: FileId) {
    body.extend_from_slice(&file.persistent.to_le_bytes());
    body.extend_from_slice(&file.volatile.to_le_bytes());
}

fn query_info(file: FileId, choices: &mut Choices<'_>) -> Draft {
    let mut body = vec![41, 0, 1 + choices.byte() % 4, choices.byte() % 80];
    body.extend_from_slice(&(choices.pick(&[0_u32, 1, 8, 24, 100, 4096, 65_536])).to_le_bytes());
    body.extend_from_slice(&[104, 0, 0, 0]);
    let input = choices.below(20);
    body.extend_from_slice(&u32::try_from(input).unwrap().to_le_bytes());
    body.extend_from_slice(&u32::from(choices.byte()).to_le_bytes());
    body.extend_from_slice(&u32::from(choices.byte() % 8).to_le_bytes());
    put_id(&mut body, file);
    body.extend(choices.some(input));
    Draft::new(Command::QUERY_INFO).body(&body)
}

fn set_info(file: FileId, choices: &mut Choices<'_>) -> Draft {
    let (kind, class, buffer) = match choices.byte() % 10 {
        0 => (1, 4, choices.some(40)),
        1 => {
            let target = utf16(choices.pick(&NAMES));
            let mut buffer = vec![choices.byte() % 2, 0, 0, 0, 0, 0, 0, 0];
            buffer.extend_from_slice(&[0; 8]);
            buffer.extend_from_slice(&u32::try_from(target.len()).unwrap().to_le_bytes());
            buffer.extend_from_slice(&target);
            (1, choices.pick(&[10, 11]), buffer)
        }
        2 => (1, 13, vec![choices.byte() % 2]),
        3 => (1, 64, choices.some(4)),
        4 => (1, choices.pick(&[19, 20]), (choices.number() % (1 << 36)).to_le_bytes().to_vec()),
        5 => {
            let mut buffer = vec![0, 0, 0, 0, 0, 4, 3, 0];
            buffer.extend_from_slice(b"name\0val");
            (1, 15, buffer)
        }
        6 => {
            let mut buffer = vec![1, 0, 4, 0x80];
            let length = choices.below(100);
            buffer.extend(choices.some(length));
            (3, 0, buffer)
        }
        _ => {
            let length = choices.below(80);
            (1 + choices.byte() % 4, choices.byte() % 80, choices.some(length))
        }
    };
    let mut body = vec![33, 0, kind, class];
    body.extend_from_slice(&u32::try_from(buffer.len()).unwrap().to_le_bytes());
    body.extend_from_slice(&[96, 0, 0, 0]);
    body.extend_from_slice(&u32::from(choices.byte() % 16).to_le_bytes());
    put_id(&mut body, file);
    body.extend_from_slice(&buffer);
    Draft::new(Command::SET_INFO).body(&body)
}

fn query_directory(file: FileId, choices: &mut Choices<'_>) -> Draft {
    let classes = [1, 2, 3, 12, 37, 38, 60, 78, 79, 80, 81, 100];
    let pattern = utf16(choices.pick(&["*", "", "*.*", "s*", "<.>", "seed", "???", "dir\\*"]));
    let mut body = vec![33, 0, choices.pick(&classes), choices.byte() % 32];
    body.extend_from_slice(&[0; 4]);
    put_id(&mut body, file);
    body.extend_from_slice(&[96, 0]);
    body.extend_from_slice(&u16::try_from(pattern.len()).unwrap().to_le_bytes());
    body.extend_from_slice(&choices.pick(&[0_u32, 8, 100, 1000, 65_536]).to_le_bytes());
    body.extend_from_slice(&pattern);
    Draft::new(Command::QUERY_DIRECTORY).body(&body)
}

fn change_notify(file: FileId, choices: &mut Choices<'_>) -> Draft {
    let mut body = vec![32, 0, choices.byte() % 2, 0];
    body.extend_from_slice(&choices.pick(&[0_u32, 16, 1000]).to_le_bytes());
    put_id(&mut body, file);
    body.extend_from_slice(&u32::from(choices.byte()).to_le_bytes());
    body.extend_from_slice(&[0; 4]);
    Draft::new(Command::CHANGE_NOTIFY).body(&body)
}

const FSCTLS: [u32; 24] = [
    0x0011_400C,
    0x0011_C017,
    0x0011_0018,
    0x0014_0078,
    0x0014_40F2,
    0x0014_80F2,
    0x0014_0204,
    0x0014_01FC,
    0x0014_4064,
    0x0014_01D4,
    0x0009_00C0,
    0x0009_009C,
    0x0009_00A8,
    0x0009_00A4,
    0x0009_00AC,
    0x0009_8344,
    0x0009_8208,
    0x0009_003C,
    0x0009_40CF,
    0x0009_00C4,
    0x0009_80C8,
    0x0009_0284,
    0x0006_0194,
    0x0009_027C,
];

fn ioctl(file: FileId, choices: &mut Choices<'_>) -> Draft {
    let file = if choices.one_in(4) { FileId::ALL_ONES } else { file };
    let code = choices.pick(&FSCTLS);
    let input = match choices.byte() % 4 {
        // The input is a byte range of two 64-bit numbers.
        0 => [choices.number().to_le_bytes(), choices.number().to_le_bytes()].concat(),
        1 => {
            // The input is a bind PDU for the server service, with one of four PDU types and random
            // content.
            let mut pdu = vec![5, 0, choices.byte() % 4 + 9, 3, 0x10, 0, 0, 0, 72, 0, 0, 0];
            let length = 60;
            pdu.extend(choices.some(length));
            pdu
        }
        _ => {
            let length = choices.below(100);
            choices.some(length)
        }
    };
    let mut body = vec![57, 0, 0, 0];
    body.extend_from_slice(&code.to_le_bytes());
    put_id(&mut body, file);
    body.extend_from_slice(&120_u32.to_le_bytes());
    body.extend_from_slice(&u32::try_from(input.len()).unwrap().to_le_bytes());
    body.extend_from_slice(&[0; 12]);
    body.extend_from_slice(&choices.pick(&[0_u32, 16, 64, 1024, 65_536]).to_le_bytes());
    body.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    body.extend_from_slice(&input);
    Draft::new(Command::IOCTL).body(&body)
}

fn oplock_break(file: FileId, choices: &mut Choices<'_>) -> Draft {
    let mut body = vec![choices.pick(&[24, 36]), 0, choices.byte(), 0, 0, 0, 0, 0];
    put_id(&mut body, file);
    body.extend(choices.some(12));
    Draft::new(Command::OPLOCK_BREAK).body(&body)
}

fn session(choices: &mut Choices<'_>) -> Draft {
    match choices.byte() % 8 {
        0 => Draft::empty(Command::LOGOFF),
        1 => Offer::default().draft(Default::default()),
        2 => {
            let length = choices.below(100);
            let token = choices.some(length);
            Setup::of("ann").draft(&token, 0)
        }
        _ => {
            let mut token = initiator("ann", "wrong").initial_token(&[], 0).unwrap();
            if choices.one_in(2) {
                mutate(&mut token, choices);
            }
            Setup::of("ann").draft(&token, 0)
        }
    }
}

fn tree(choices: &mut Choices<'_>) -> Draft {
    match choices.byte() % 8 {
        0 => Draft::empty(Command::TREE_DISCONNECT),
        _ => files::tree_connect_draft(choices.pick(&[
            "\\\\frevo\\data",
            "\\\\frevo\\IPC$",
            "\\\\frevo\\sealed",
            "\\\\frevo\\readonly",
            "\\\\frevo\\bobs",
            "\\\\frevo\\absent",
            "\\\\",
        ])),
    }
}

/// Takes in what has come, and remembers what it names.
async fn drain(seat: &mut Seat) {
    loop {
        match timeout(Duration::from_millis(1), seat.peer.replies()).await {
            Err(_) => return,
            Ok(None) => {
                seat.ended = true;
                return;
            }
            Ok(Some(replies)) => replies.iter().for_each(|reply| note(seat, reply)),
        }
    }
}

fn note(seat: &mut Seat, reply: &Reply) {
    if reply.is_interim() {
        seat.waiting.push((reply.header.message_id, async_id(reply)));
        seat.waiting.truncate(64);
        return;
    }
    if reply.status() != Status::SUCCESS {
        return;
    }
    match reply.header.command {
        Command::CREATE => {
            seat.files.insert(0, files::file_id(reply));
            seat.files.truncate(16);
        }
        Command::TREE_CONNECT => {
            let logon: Option<Rc<Logon>> = seat.peer.logon(reply.header.session_id);
            if let (Some(logon), Some(tree)) = (logon, reply.header.tree_id()) {
                seat.mounts.insert(0, Mount::new(&logon, tree));
                seat.mounts.truncate(6);
            }
        }
        _ => {}
    }
}
