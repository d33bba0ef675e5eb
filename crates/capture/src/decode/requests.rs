//! Requests in words.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use frevo_wire::codec::Reader;
use frevo_wire::command::{
    change_notify, close, create, flush, ioctl, lock, negotiate, oplock_break, query_directory,
    query_info, session_setup, set_info, tree_connect,
};
use frevo_wire::create_context::{CreateContext, DurableHandleFlags, LeaseKey};
use frevo_wire::fscc::{FileInfoClass, FsInfoClass};
use frevo_wire::header::HEADER_LEN;
use frevo_wire::{Command, FileId, Header, HeaderFlags, Utf16};

use super::line::Line;
use super::state::{Asked, State};
use super::words;

/// Facts of a request by which its answer is understood.
#[derive(Default)]
struct About {
    file_id: Option<FileId>,
    lease_key: Option<LeaseKey>,
}

/// Fills the line of a request, and remembers it.
pub(super) fn request(state: &mut State, header: &Header, message: &[u8], line: &mut Line) {
    line.is_replay = header.flags.contains(HeaderFlags::REPLAY_OPERATION);
    if line.is_replay {
        line.notes.push(String::from(
            "replay: the client has lost the answer and asks again; the server does not carry it out twice",
        ));
    }
    let sequence = header.channel_sequence();
    let has_sequence = !matches!(header.command, Command::NEGOTIATE | Command::SESSION_SETUP);
    if sequence > 0 && has_sequence {
        line.notes.push(format!(
            "channel sequence {sequence}: the client has lost a connection before; what it sent earlier must not \
             overtake this"
        ));
    }
    if header.command == Command::CANCEL {
        let asked = state.cancelled(line, header);
        line.name = asked.map(|asked| asked.name.clone()).unwrap_or_default();
        line.text = asked.map_or(String::new(), |asked| format!("gives up a {}", asked.command));
        return;
    }
    let about = describe(state, header, message, line).unwrap_or_else(|| {
        line.text = String::from("its fields are not all in the file, or malformed");
        About::default()
    });
    if let Some(left) = state.spend(line.connection, header)
        && left <= 0
        && !matches!(header.command, Command::NEGOTIATE | Command::SESSION_SETUP)
    {
        line.notes.push(String::from(if left == 0 {
            "credits: none is left, so the next request waits for an answer"
        } else {
            "credits: it costs more than the client has"
        }));
    }
    state.related.clone_from(&line.name);
    let asked = Asked {
        time_ns: line.time_ns,
        command: header.command,
        name: line.name.clone(),
        file_id: about.file_id,
        lease_key: about.lease_key,
        is_replay: line.is_replay,
        is_put_off: false,
    };
    state.ask(line, header, asked);
}

/// Fills name, text and notes. None for a message that cannot be read.
fn describe(state: &State, header: &Header, message: &[u8], line: &mut Line) -> Option<About> {
    let mut of_file = |id: FileId, text: String| {
        line.name = state.file(header.session_id, id);
        line.text = text;
        Some(About { file_id: Some(id), lease_key: None })
    };
    match header.command {
        Command::NEGOTIATE => {
            let request = negotiate::Request::parse(message).ok()?;
            let dialects: Vec<String> =
                request.dialects.iter().take(16).map(|dialect| words::dialect(*dialect)).collect();
            line.text = format!("offers SMB {}", dialects.join(", "));
            Some(About::default())
        }
        Command::SESSION_SETUP => session_setup(message, line),
        Command::TREE_CONNECT => {
            let request = tree_connect::Request::parse(message).ok()?;
            line.name = words::shown(&request.path.to_string_lossy());
            Some(About::default())
        }
        Command::TREE_DISCONNECT => {
            line.name = state.share(header.session_id, header.tree_id().unwrap_or(0));
            Some(About::default())
        }
        Command::CREATE => create(state, header, message, line),
        Command::CLOSE => of_file(close::Request::parse(message).ok()?.file_id, String::new()),
        Command::FLUSH => of_file(flush::Request::parse(message).ok()?.file_id, String::new()),
        Command::READ | Command::WRITE => data(state, header, message, line),
        Command::LOCK => {
            let request = lock::Request::parse(message).ok()?;
            of_file(request.file_id, locks(&request))
        }
        Command::IOCTL => {
            let fixed = message.get(..HEADER_LEN.saturating_add(56))?;
            let r = &mut Reader::new(fixed);
            r.skip(68, "head").ok()?;
            let code = ioctl::CtlCode(r.u32("CtlCode").ok()?);
            of_file(FileId::read(r).ok()?, code.to_string())
        }
        Command::QUERY_DIRECTORY => {
            let request = query_directory::Request::parse(message).ok()?;
            let class = FileInfoClass(request.file_information_class);
            let pattern = words::shown(&request.file_name.to_string_lossy());
            of_file(request.file_id, format!("lists {pattern} ({class})"))
        }
        Command::CHANGE_NOTIFY => {
            let request = change_notify::Request::parse(message).ok()?;
            of_file(request.file_id, String::from("waits for changes"))
        }
        Command::QUERY_INFO => {
            let request = query_info::Request::parse(message).ok()?;
            let subject = subject(request.info_type, request.file_info_class);
            of_file(request.file_id, format!("asks for {subject}"))
        }
        Command::SET_INFO => {
            let request = set_info::Request::parse(message).ok()?;
            let mut text = format!("sets {}", subject(request.info_type, request.file_info_class));
            if let Some(target) = target_of(&request) {
                text = format!("{text} to {target}");
            }
            of_file(request.file_id, text)
        }
        Command::OPLOCK_BREAK => acknowledgment(state, header, message, line),
        _ => Some(About::default()),
    }
}

fn session_setup(message: &[u8], line: &mut Line) -> Option<About> {
    let request = session_setup::Request::parse(message).ok()?;
    if request.flags.contains(session_setup::SessionSetupFlags::BINDING) {
        line.text = String::from("adds this connection to the session");
    } else if line.session_id == 0 {
        line.text = String::from("begins a logon");
    } else {
        line.text = String::from("goes on with a logon");
    }
    if request.previous_session_id != 0 {
        let previous = request.previous_session_id;
        line.notes.push(format!("it ends the client's earlier session {previous:#x}"));
    }
    Some(About::default())
}

fn create(state: &State, header: &Header, message: &[u8], line: &mut Line) -> Option<About> {
    let request = create::Request::parse(message).ok()?;
    let share = state.share(header.session_id, header.tree_id().unwrap_or(0));
    let name = request.name.to_string_lossy();
    line.name = words::shown(&match (share.is_empty(), name.is_empty()) {
        (_, true) => share,
        (true, false) => name,
        (false, false) => format!("{share}\\{name}"),
    });
    line.text = words::disposition(request.create_disposition);
    let mut lease_key = None;
    if request.create_options.contains(create::CreateOptions::DELETE_ON_CLOSE) {
        line.text.push_str(", delete on close");
    }
    if !matches!(
        request.requested_oplock_level,
        create::OplockLevel::NONE | create::OplockLevel::LEASE
    ) {
        line.text =
            format!("{}, wants a {}", line.text, words::oplock(request.requested_oplock_level));
    }
    for context in request.contexts.requests().flatten() {
        let told = match context {
            CreateContext::Lease(lease) => {
                lease_key = Some(lease.lease_key);
                wanted(&lease)
            }
            CreateContext::LeaseV2(lease) => {
                lease_key = Some(lease.lease.lease_key);
                wanted(&lease.lease)
            }
            CreateContext::DurableRequest => String::from("wants a durable handle"),
            CreateContext::DurableRequestV2(durable)
                if durable.flags.contains(DurableHandleFlags::PERSISTENT) =>
            {
                String::from("wants a persistent handle")
            }
            CreateContext::DurableRequestV2(_) => String::from("wants a durable handle"),
            CreateContext::DurableReconnect(_) | CreateContext::DurableReconnectV2(_) => {
                line.notes.push(String::from(
                    "the client takes up a handle that it had on a connection that was lost",
                ));
                continue;
            }
            CreateContext::Timewarp(_) => String::from("in a snapshot"),
            _ => continue,
        };
        line.text = format!("{}, {told}", line.text);
    }
    Some(About { file_id: None, lease_key })
}

fn wanted(lease: &frevo_wire::create_context::Lease) -> String {
    format!(
        "wants a lease {} (key {})",
        words::lease(lease.lease_state),
        words::key(lease.lease_key)
    )
}

/// READ and WRITE, whose data is not needed.
fn data(state: &State, header: &Header, message: &[u8], line: &mut Line) -> Option<About> {
    let r = &mut Reader::new(message);
    r.skip(68, "head").ok()?;
    let length = r.u32("Length").ok()?;
    let offset = r.u64("Offset").ok()?;
    let file_id = FileId::read(r).ok()?;
    r.skip(if header.command == Command::READ { 4 } else { 0 }, "MinimumCount").ok()?;
    let channel = r.u32("Channel").ok()?;
    let remaining = r.u32("RemainingBytes").ok()?;
    line.name = state.file(header.session_id, file_id);
    let is_moved = channel != 0 && header.command == Command::WRITE;
    let count = if is_moved { remaining } else { length };
    line.data_bytes = Some(count.into());
    line.text = format!("{count} bytes at {offset}");
    if channel != 0 {
        line.text.push_str(", moved by RDMA");
    }
    Some(About { file_id: Some(file_id), lease_key: None })
}

/// Ranges of a LOCK that are shown.
const RANGES_SHOWN: usize = 3;

fn locks(request: &lock::Request) -> String {
    let mut ranges: Vec<String> = request
        .locks
        .iter()
        .take(RANGES_SHOWN)
        .map(|one| {
            let act = if one.flags.contains(lock::LockFlags::UNLOCK) {
                "unlocks"
            } else if one.flags.contains(lock::LockFlags::EXCLUSIVE_LOCK) {
                "locks"
            } else {
                "locks shared"
            };
            let fails = one.flags.contains(lock::LockFlags::FAIL_IMMEDIATELY);
            let waits = if fails || act == "unlocks" { "" } else { ", waiting" };
            format!("{act} {} bytes at {}{waits}", one.length, one.offset)
        })
        .collect();
    let more = request.locks.len().saturating_sub(RANGES_SHOWN);
    if more > 0 {
        ranges.push(format!("and {more} more"));
    }
    ranges.join("; ")
}

fn subject(kind: query_info::InfoType, class: u8) -> String {
    match kind {
        query_info::InfoType::FILE => FileInfoClass(class).to_string(),
        query_info::InfoType::FILESYSTEM => format!("the volume's {}", FsInfoClass(class)),
        query_info::InfoType::SECURITY => String::from("the access list"),
        query_info::InfoType::QUOTA => String::from("quotas"),
        other => other.to_string(),
    }
}

/// Returns the new name of a rename or a hard link, MS-FSCC 2.4.42.
fn target_of(request: &set_info::Request<'_>) -> Option<String> {
    let class = FileInfoClass(request.file_info_class);
    let names = [FileInfoClass::RENAME, FileInfoClass::RENAME_EX, FileInfoClass::LINK];
    if request.info_type != query_info::InfoType::FILE || !names.contains(&class) {
        return None;
    }
    let r = &mut Reader::new(request.buffer);
    r.skip(16, "rename").ok()?;
    let len = usize::try_from(r.u32("FileNameLength").ok()?).ok()?;
    let name = Utf16::new(r.take(len, "FileName").ok()?).ok()?;
    Some(words::shown(&name.to_string_lossy()))
}

fn acknowledgment(
    state: &State,
    header: &Header,
    message: &[u8],
    line: &mut Line,
) -> Option<About> {
    match oplock_break::Request::parse(message).ok()? {
        oplock_break::Request::Lease(lease) => {
            let known = state.leased(lease.lease_key);
            line.name = known.map(|known| known.name.clone()).unwrap_or_default();
            let kept = words::lease(lease.lease_state);
            line.text = format!("keeps {kept} of the lease {}", words::key(lease.lease_key));
            line.notes.push(String::from(
                "lease: the client has written back what it must, and obeys the break",
            ));
            Some(About { file_id: None, lease_key: Some(lease.lease_key) })
        }
        oplock_break::Request::Oplock(oplock) => {
            line.name = state.file(header.session_id, oplock.file_id);
            line.text = format!("keeps {}", words::oplock(oplock.oplock_level));
            Some(About { file_id: Some(oplock.file_id), lease_key: None })
        }
    }
}
