//! One to four clients of one server that know what they were answered: opens, leases,
//! locks, watches, cancellations, channels, disconnections, reconnections.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use frevo_server::settings::Encryption;
use frevo_wire::command::create::{CreateDisposition, CreateOptions, OplockLevel, ShareAccess};
use frevo_wire::command::lock::LockFlags;
use frevo_wire::command::{create, oplock_break};
use frevo_wire::create_context::{CreateContexts, name};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::{Command, FileId, HeaderFlags, Status};

use crate::arena::{Answer, Arena, Inbox, in_arena};
use crate::server::client::draft::{Draft, Via, pack, seal, sign_anything};
use crate::server::client::files::{self, Mount, Want};
use crate::server::client::logon::{Logon, Setup};
use crate::server::client::script::{Choices, menu, mutate};
use crate::server::client::{Offer, Peer, Settings, settings};

/// Pauses of 10 ms before unanswered requests count as lost.
const PATIENCE: usize = 200;
/// Most requests of one input.
const REQUESTS: usize = 2_000;
/// Most connections at a time.
const SEATS: usize = 4;
/// Bytes that are gathered before they are sent.
const GATHERED: usize = 16 << 10;
/// Most requests of a compound.
const MEMBERS: usize = 4;
/// Handles that a client remembers, the oldest of them forgotten.
const HANDLES: usize = 12;

/// One connection, its session, and the values that the server returned.
struct Seat {
    peer: Peer,
    inbox: Inbox,
    logon: Rc<Logon>,
    mounts: Vec<Mount>,
    handles: Vec<FileId>,
    /// MessageId and AsyncId of what waits.
    waiting: Vec<(u64, u64)>,
    /// Breaks to acknowledge, as drafts.
    breaks: Vec<Draft>,
    /// MessageIds without a final answer; unknown once a message was damaged.
    asked: Option<HashSet<u64>>,
    /// Frames that wait to be sent.
    gathered: Vec<u8>,
}

/// Plays a sequence of requests: the first byte selects how many are sealed, the rest selects the
/// requests.
pub fn stateful(data: &[u8]) {
    let Some((first, script)) = data.split_first() else { return };
    let encryption = if first % 8 == 7 { Encryption::Required } else { Encryption::Offered };
    let settings = Settings { encryption, ..settings() };
    in_arena(settings, async |arena| play(arena, &mut Choices::new(script)).await);
}

async fn play(arena: &Arena, choices: &mut Choices<'_>) {
    let mut seats: Vec<Seat> = Vec::new();
    let mut requests = 0;
    while !choices.is_over() && requests < REQUESTS {
        if seats.is_empty() {
            let Some(seat) = take_seat(arena, choices, None).await else { return };
            seats.push(seat);
        }
        let code = choices.byte();
        let at = usize::from(code >> 6) % seats.len();
        requests += 1;
        match code & 0x3F {
            0 if seats.len() < SEATS => {
                let seat = take_seat(arena, choices, seats.first()).await;
                seats.extend(seat);
            }
            1 => drop(seats.swap_remove(at)),
            2 => wait(&mut seats, choices).await,
            code => act(&mut seats[at], choices, code),
        }
        // Clients may send many requests without waiting, so replies are read only now and then.
        let is_full = seats.iter().any(|seat| seat.gathered.len() > GATHERED);
        if is_full || choices.one_in(16) {
            exchange(&mut seats).await;
        }
    }
    count(requests);
    exchange(&mut seats).await;
    for seat in &mut seats {
        // The server must still serve each open connection, so an ECHO is sent on it.
        if !seat.inbox.is_over && seat.asked.is_some() {
            let mut echo = Draft::echo();
            seat.peer.stamp(&mut echo);
            seat.post(&[echo], Via::Plain);
        }
    }
    exchange(&mut seats).await;
    for _ in 0..PATIENCE {
        if !seats.iter().any(Seat::lost_requests) {
            return;
        }
        // The threads of the server need real time, which does not pass while the runtime's clock
        // is paused.
        std::thread::sleep(Duration::from_millis(10));
        exchange(&mut seats).await;
    }
    if let Some(seat) = seats.iter().find(|seat| seat.lost_requests()) {
        let asked = seat.asked.as_ref().map_or(0, HashSet::len);
        panic!("{asked} requests are lost, and {} wait", seat.waiting.len());
    }
}

/// Tells once a second how many requests were made, where FREVO_FUZZ_RATE is set.
fn count(requests: usize) {
    static BEGUN: OnceLock<Option<Instant>> = OnceLock::new();
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    static TOLD: AtomicU64 = AtomicU64::new(0);
    let asked = || std::env::var_os("FREVO_FUZZ_RATE").map(|_| Instant::now());
    let Some(begun) = BEGUN.get_or_init(asked) else { return };
    let count = COUNT.fetch_add(requests, Ordering::Relaxed) + requests;
    let seconds = begun.elapsed().as_secs();
    if TOLD.swap(seconds, Ordering::Relaxed) != seconds {
        eprintln!("{} requests a second", count as u64 / seconds.max(1));
    }
}

/// A session of its own, or a channel of the first seat's.
async fn take_seat(arena: &Arena, choices: &mut Choices<'_>, first: Option<&Seat>) -> Option<Seat> {
    let kind = choices.byte();
    let first = first.filter(|first| kind % 4 == 3 && !first.inbox.is_over);
    let guid = first.map(|first| first.peer.guid);
    let offer = Offer::default();
    let mut peer = arena.connect(guid, &offer).await?;
    let user = if kind & 0x10 == 0 { "ann" } else { "bob" };
    let bound = match first {
        Some(first) => peer.try_log_on(Setup::binding("ann", &first.logon)).await.ok(),
        None => None,
    };
    let is_bound = bound.is_some();
    let logon = match bound {
        Some(logon) => logon,
        None => peer.try_log_on(Setup::of(user)).await.ok()?,
    };
    let mut mounts = Vec::new();
    match first.filter(|_| is_bound) {
        Some(first) => mounts.extend(first.mounts.iter().map(|mount| mount.on(&logon))),
        None => {
            let shares = ["data", "lasting", "backups", "IPC$"];
            let share = shares[usize::from(kind >> 5) % shares.len()];
            mounts.extend(peer.try_mount(&logon, share).await);
        }
    }
    Some(Seat {
        peer,
        inbox: Inbox::default(),
        logon,
        mounts,
        handles: first.filter(|_| is_bound).map_or_else(Vec::new, |first| first.handles.clone()),
        waiting: Vec::new(),
        breaks: Vec::new(),
        asked: Some(HashSet::new()),
        gathered: Vec::new(),
    })
}

/// Sends the waiting frames and reads the answers.
async fn exchange(seats: &mut Vec<Seat>) {
    for seat in seats.iter_mut() {
        let bytes = std::mem::take(&mut seat.gathered);
        if !bytes.is_empty() {
            seat.peer.send_bytes(&bytes).await;
        }
    }
    for seat in seats.iter_mut() {
        let answers = seat.inbox.answers(&seat.peer.stream, &seat.peer.logons).await;
        answers.iter().for_each(|answer| seat.note(answer));
    }
    seats.retain(|seat| !seat.inbox.is_over);
}

/// Advances the clock: interim responses, unanswered breaks, timeouts of handles.
async fn wait(seats: &mut Vec<Seat>, choices: &mut Choices<'_>) {
    exchange(seats).await;
    let times = [1, 150, 1_000, 40_000, 130_000];
    tokio::time::sleep(Duration::from_millis(choices.pick(&times))).await;
    exchange(seats).await;
}

fn act(seat: &mut Seat, choices: &mut Choices<'_>, code: u8) {
    let mount = match seat.mounts.len() {
        0 => None,
        len => Some(seat.mounts[choices.below(len)].clone()),
    };
    let file = match seat.handles.len() {
        0 => FileId::default(),
        len => seat.handles[choices.below(len)],
    };
    let draft = match code {
        3..=18 => open(choices),
        19..=24 => files::close_draft(file),
        25 | 26 => files::read_draft(file, u64::from(choices.byte()), 64),
        27 | 28 => files::write_draft(file, u64::from(choices.byte()), b"written"),
        29..=33 => lock(file, choices),
        34 | 35 => rename(file, choices),
        36 => files::delete_draft(file),
        37..=40 => match seat.breaks.pop() {
            Some(draft) => draft,
            None => Draft::echo(),
        },
        41 | 42 => return seat.cancel(choices),
        43 => watch(file, choices),
        44..=46 => return seat.compound(mount.as_ref(), choices),
        47 => return seat.damaged(mount.as_ref(), choices),
        _ => menu(&seat.handles, choices, false),
    };
    seat.request(mount.as_ref(), vec![draft]);
}

const NAMES: [&str; 8] = ["a", "b", "dir", "dir\\a", "dir\\b", "a:s", "A", "dir\\sub"];

/// A CREATE, in which names, leases and durable handles of all clients meet.
fn open(choices: &mut Choices<'_>) -> Draft {
    let shape = choices.byte();
    let mut want = Want::file(NAMES[usize::from(shape & 7)]);
    if shape & 7 == 2 {
        want.options = CreateOptions::DIRECTORY_FILE;
    }
    let how = choices.byte();
    want.access = AccessMask([0x1F_01FF, 0x12_0089, 0x12_019F, 0x1_0080][usize::from(how & 3)]);
    want.sharing = ShareAccess([7, 7, 7, 3, 1, 0, 7, 5][usize::from(how >> 2 & 7)]);
    want.disposition = CreateDisposition([3, 3, 3, 1, 2, 5, 0, 4][usize::from(how >> 5)]);
    if shape & 0x18 == 0x18 {
        want.options |= CreateOptions::DELETE_ON_CLOSE;
    }
    let mut contexts: Vec<(&[u8], Vec<u8>)> = Vec::new();
    match shape >> 5 {
        0 | 1 => {}
        2 => want.oplock = OplockLevel::BATCH,
        3 => want.oplock = OplockLevel::EXCLUSIVE,
        kind => {
            want.oplock = OplockLevel(0xFF);
            let lease = choices.byte();
            let mut data = vec![lease & 3; 16];
            data.extend_from_slice(&u32::from(lease >> 2 & 7).to_le_bytes());
            data.resize(52, 0);
            data[48] = lease >> 5;
            contexts.push((name::RQLS, data));
            if kind >= 6 {
                let mut durable = vec![0; 16];
                durable[4] = (kind == 7).into();
                durable.extend([lease & 3; 16]);
                contexts.push((name::DH2Q, durable));
            }
        }
    }
    if !contexts.is_empty() {
        let list: Vec<_> = contexts.iter().map(|(name, data)| (*name, &data[..])).collect();
        want.contexts = CreateContexts::build(&list).as_bytes().to_vec();
    }
    want.draft()
}

fn lock(file: FileId, choices: &mut Choices<'_>) -> Draft {
    let shape = choices.byte();
    // The flags are shared, exclusive and unlock; 0x10 means that the request must not wait.
    let flags = [1, 2, 4, 0x11, 0x12, 2, 4, 1][usize::from(shape & 7)];
    let range = u64::from(shape >> 3 & 7);
    let length = [1, 2, 8, u64::MAX][usize::from(shape >> 6)];
    files::lock_draft(file, &[(range, length, LockFlags(flags))])
}

fn rename(file: FileId, choices: &mut Choices<'_>) -> Draft {
    let shape = choices.byte();
    let to = NAMES[usize::from(shape & 7)];
    let class = frevo_wire::fscc::FileInfoClass(10);
    files::rename_draft(class, file, to, shape & 8 == 0)
}

fn watch(file: FileId, choices: &mut Choices<'_>) -> Draft {
    let shape = choices.byte();
    let mut body = vec![32, 0, shape & 1, 0];
    body.extend_from_slice(
        &[[0_u32, 16, 1_000, 65_536][usize::from(shape >> 6)]].map(u32::to_le_bytes).concat(),
    );
    body.extend_from_slice(&file.persistent.to_le_bytes());
    body.extend_from_slice(&file.volatile.to_le_bytes());
    body.extend_from_slice(&0xFFF_u32.to_le_bytes());
    body.extend_from_slice(&[0; 4]);
    Draft::new(Command::CHANGE_NOTIFY).body(&body)
}

impl Seat {
    /// True if a connection that is still open owes answers to more requests than may wait.
    fn lost_requests(&self) -> bool {
        // If a compound waits, only one of its members gets an interim response, so each entry in
        // `waiting` counts for MEMBERS requests.
        let most = self.waiting.len() * MEMBERS + 64;
        !self.inbox.is_over && self.asked.as_ref().is_some_and(|asked| asked.len() > most)
    }

    /// Puts a compound into the bytes to send.
    fn post(&mut self, drafts: &[Draft], via: Via<'_>) {
        self.post_frame(&pack(drafts, via));
        if let Some(asked) = &mut self.asked {
            let answered = drafts.iter().filter(|draft| draft.header.command != Command::CANCEL);
            asked.extend(answered.map(|draft| draft.header.message_id));
        }
    }

    fn post_frame(&mut self, frame: &[u8]) {
        let length = u32::try_from(frame.len()).expect("a short frame");
        self.gathered.extend_from_slice(&length.to_be_bytes());
        self.gathered.extend_from_slice(frame);
    }

    fn request(&mut self, mount: Option<&Mount>, mut drafts: Vec<Draft>) {
        for draft in &mut drafts {
            if let Some(mount) = mount {
                *draft = mount.put(draft.clone());
            }
            self.peer.stamp(draft);
        }
        let logon = Rc::clone(&self.logon);
        self.post(&drafts, mount.map_or_else(|| logon.via(), Mount::via));
    }

    /// Makes a compound: CREATE and requests on the new handle.
    fn compound(&mut self, mount: Option<&Mount>, choices: &mut Choices<'_>) {
        let Some(mount) = mount else { return };
        let mut drafts = vec![mount.put(open(choices))];
        for _ in 0..1 + choices.below(3) {
            let draft = match choices.byte() % 4 {
                0 => files::close_draft(files::PREVIOUS),
                1 => lock(files::PREVIOUS, choices),
                2 => rename(files::PREVIOUS, choices),
                _ => menu(&self.handles, choices, true),
            };
            drafts.push(mount.put(draft).flags(HeaderFlags::RELATED_OPERATIONS));
        }
        drafts.iter_mut().for_each(|draft| self.peer.stamp(draft));
        let via = mount.via();
        self.post(&drafts, via);
    }

    /// A request with bytes changed behind the client's back, but signed or sealed.
    fn damaged(&mut self, mount: Option<&Mount>, choices: &mut Choices<'_>) {
        let Some(mount) = mount else { return };
        let mut draft = mount.put(menu(&self.handles, choices, false));
        self.peer.stamp(&mut draft);
        let mut message = draft.bytes();
        mutate(&mut message, choices);
        self.asked = None;
        let frame = match mount.via() {
            Via::Sealed(logon) => seal(&message, logon, logon.id),
            Via::Signed(logon) => {
                sign_anything(&mut message, logon);
                message
            }
            Via::Plain => message,
        };
        self.post_frame(&frame);
    }

    fn cancel(&mut self, choices: &mut Choices<'_>) {
        let at = choices.below(self.waiting.len());
        let (message_id, async_id) = match self.waiting.is_empty() {
            true => (u64::from(choices.byte()), 0),
            false => self.waiting[at],
        };
        let by_id = async_id != 0 && choices.coin();
        let draft = Peer::cancel(message_id, by_id.then_some(async_id), self.logon.id);
        let logon = Rc::clone(&self.logon);
        self.post(&[draft], logon.via());
    }

    /// Remembers what a response names.
    fn note(&mut self, answer: &Answer) {
        let header = &answer.header;
        if header.command == Command::OPLOCK_BREAK && header.message_id == u64::MAX {
            return self.note_break(answer);
        }
        if header.status == Status::PENDING {
            self.waiting.push((header.message_id, answer.async_id()));
            return;
        }
        self.waiting.retain(|(message_id, _)| *message_id != header.message_id);
        if let Some(asked) = &mut self.asked {
            assert!(asked.remove(&header.message_id), "answered twice, or unasked: {header:?}");
        }
        if header.command == Command::CREATE && header.status == Status::SUCCESS {
            let created = create::Response::parse(&answer.message).expect("an answer to CREATE");
            self.handles.insert(0, created.file_id);
            self.handles.truncate(HANDLES);
        }
    }

    fn note_break(&mut self, answer: &Answer) {
        let notification = oplock_break::Notification::parse(&answer.message).expect("a break");
        let acknowledgement = match notification {
            oplock_break::Notification::Oplock(told) => oplock_break::Request::Oplock(told),
            oplock_break::Notification::Lease(told) => {
                oplock_break::Request::Lease(oplock_break::LeaseBreak {
                    lease_key: told.lease_key,
                    lease_state: told.new_lease_state,
                })
            }
        };
        let draft = Draft::new(Command::OPLOCK_BREAK).with(|w| acknowledgement.encode(w));
        self.breaks.push(draft);
        self.breaks.truncate(HANDLES);
    }
}
