//! Answers and notifications in words.

use alloc::format;
use alloc::string::{String, ToString};

use frevo_wire::codec::Reader;
use frevo_wire::command::{create, negotiate, oplock_break, session_setup, tree_connect, write};
use frevo_wire::create_context::{DurableHandleFlags, Lease, ResponseContext};
use frevo_wire::header::HEADER_LEN;
use frevo_wire::{Command, Header, Status};

use super::line::Line;
use super::state::{Asked, State};
use super::words;

/// An answer, and the request that it belongs to if that is in the file.
struct Answered<'a> {
    header: &'a Header,
    message: &'a [u8],
    asked: Option<&'a Asked>,
}

/// Fills the line of an answer or a notification.
pub(super) fn answer(state: &mut State, header: &Header, message: &[u8], line: &mut Line) {
    if header.message_id == u64::MAX {
        notification(state, header, message, line);
        return;
    }
    let asked = state.asked(line, header);
    let credits = state.grant(line.connection, header);
    if header.status == Status::PENDING && line.async_id.is_some() {
        line.name = asked.map(|asked| asked.name).unwrap_or_default();
        line.text = String::from("the server will answer later");
        return;
    }
    match &asked {
        None => line.notes.push(String::from("its request is not in the file")),
        Some(asked) => {
            line.name.clone_from(&asked.name);
            line.latency_ns =
                line.time_ns.zip(asked.time_ns).map(|(end, begin)| end.saturating_sub(begin));
        }
    }
    // An interim answer has granted the credits of an answer that comes later.
    let is_put_off = asked.as_ref().is_some_and(|asked| asked.is_put_off);
    if header.credits == 0 && !is_put_off && header.next_command == 0 && credits == Some(0) {
        line.notes.push(String::from("credits: it grants none, and the client has none left"));
    }
    if let Some(meaning) = words::meaning(header.command, header.status) {
        line.notes.push(meaning.to_string());
    }
    if asked.as_ref().is_some_and(|asked| asked.is_replay) && !header.status.is_error() {
        line.notes.push(String::from("the answer to a replay: it is that of the first sending"));
    }
    let has_body = header.status == Status::SUCCESS
        || header.status == Status::BUFFER_OVERFLOW
        || header.status == Status::MORE_PROCESSING_REQUIRED;
    if has_body {
        let answered = Answered { header, message, asked: asked.as_ref() };
        describe(state, &answered, line);
    }
}

/// Fills the text of an answer. One that cannot be read has none.
fn describe(state: &mut State, answered: &Answered<'_>, line: &mut Line) -> Option<()> {
    let Answered { header, message, asked } = *answered;
    match header.command {
        Command::NEGOTIATE => {
            let response = negotiate::Response::parse(message).ok()?;
            let dialect = words::dialect(response.dialect_revision);
            let (read, write) = (response.max_read_size, response.max_write_size);
            line.text =
                format!("SMB {dialect}, READs of {read} and WRITEs of {write} bytes at most");
        }
        Command::SESSION_SETUP => logged_on(message, line)?,
        Command::TREE_CONNECT => {
            let response = tree_connect::Response::parse(message).ok()?;
            state.name_share(header.session_id, header.tree_id()?, &line.name);
            line.text = format!("{}", response.share_type);
            let is_continuous = tree_connect::ShareCapabilities::CONTINUOUS_AVAILABILITY;
            if response.capabilities.contains(is_continuous) {
                line.text.push_str(", continuously available");
            }
        }
        Command::CREATE => created(state, answered, line)?,
        Command::CLOSE => {
            let id = asked.and_then(|asked| asked.file_id)?;
            state.close_file(header.session_id, id);
        }
        Command::READ => {
            let r = &mut Reader::new(message);
            r.skip(HEADER_LEN.saturating_add(4), "head").ok()?;
            let moved = (r.u32("DataLength").ok()?, r.u32("DataRemaining").ok()?);
            let count = if moved.0 == 0 { moved.1 } else { moved.0 };
            line.data_bytes = Some(count.into());
            line.text = format!("{count} bytes");
        }
        Command::WRITE => {
            let count = write::Response::parse(message).ok()?.count;
            line.data_bytes = Some(count.into());
            line.text = format!("{count} bytes");
        }
        Command::QUERY_DIRECTORY | Command::QUERY_INFO | Command::CHANGE_NOTIFY => {
            let r = &mut Reader::new(message);
            r.skip(HEADER_LEN.saturating_add(4), "head").ok()?;
            line.text = format!("{} bytes", r.u32("OutputBufferLength").ok()?);
        }
        Command::OPLOCK_BREAK => {
            if let oplock_break::Response::Lease(lease) =
                oplock_break::Response::parse(message).ok()?
            {
                state.lease(lease.lease_key, lease.lease_state, "");
                line.text = format!("the lease is {} now", words::lease(lease.lease_state));
            }
        }
        _ => {}
    }
    Some(())
}

fn logged_on(message: &[u8], line: &mut Line) -> Option<()> {
    let response = session_setup::Response::parse(message).ok()?;
    let flags = response.session_flags;
    for (flag, text) in [
        (session_setup::SessionFlags::IS_GUEST, "as a guest"),
        (session_setup::SessionFlags::IS_NULL, "without a user"),
        (session_setup::SessionFlags::ENCRYPT_DATA, "encrypted from now on"),
    ] {
        if flags.contains(flag) {
            line.text = text.to_string();
        }
    }
    Some(())
}

fn created(state: &mut State, answered: &Answered<'_>, line: &mut Line) -> Option<()> {
    let response = create::Response::parse(answered.message).ok()?;
    state.name_file(answered.header.session_id, response.file_id, &line.name);
    let act = match response.create_action {
        create::CreateAction::OPENED => String::from("opened"),
        create::CreateAction::CREATED => String::from("created"),
        create::CreateAction::OVERWRITTEN => String::from("truncated"),
        create::CreateAction::SUPERSEDED => String::from("replaced"),
        other => other.to_string(),
    };
    let is_directory =
        response.file_attributes.contains(frevo_wire::dtyp::FileAttributes::DIRECTORY);
    line.text = match is_directory {
        true => format!("{act}, a directory"),
        false => format!("{act}, {} bytes", response.end_of_file),
    };
    let has_oplock =
        !matches!(response.oplock_level, create::OplockLevel::NONE | create::OplockLevel::LEASE);
    if has_oplock {
        line.text = format!("{}, {}", line.text, words::oplock(response.oplock_level));
    }
    let mut is_leased = false;
    for context in response.contexts.responses().flatten() {
        match context {
            ResponseContext::Lease(lease) => {
                is_leased = true;
                granted(state, &lease, line);
            }
            ResponseContext::LeaseV2(lease) => {
                is_leased = true;
                granted(state, &lease.lease, line);
            }
            ResponseContext::Durable => line.text.push_str(", durable"),
            ResponseContext::DurableV2(durable) => {
                let is_persistent = durable.flags.contains(DurableHandleFlags::PERSISTENT);
                let kind = if is_persistent { "persistent" } else { "durable" };
                let seconds = durable.timeout / 1000;
                line.text = format!("{}, {kind} for {seconds} s", line.text);
            }
            _ => {}
        }
    }
    if answered.asked.is_some_and(|asked| asked.lease_key.is_some()) && !is_leased {
        line.notes.push(String::from("lease: none was granted"));
    }
    Some(())
}

fn granted(state: &mut State, lease: &Lease, line: &mut Line) {
    let before = state.lease(lease.lease_key, lease.lease_state, &line.name);
    let now = words::lease(lease.lease_state);
    line.text = format!("{}, lease {now}", line.text);
    let is_same = before.is_some_and(|before| before.state == lease.lease_state);
    if !is_same {
        let meaning = words::lease_meaning(lease.lease_state);
        line.notes.push(format!("lease {} is {now}: {meaning}", words::key(lease.lease_key)));
    }
}

fn notification(state: &mut State, header: &Header, message: &[u8], line: &mut Line) {
    match header.command {
        Command::OPLOCK_BREAK => {}
        Command::SERVER_TO_CLIENT_NOTIFICATION => {
            line.text = String::from("the server has ended the session");
            return;
        }
        _ => return,
    }
    // The server sends it without a request, so its status says nothing.
    line.is_answer = false;
    line.status = None;
    match oplock_break::Notification::parse(message) {
        Ok(oplock_break::Notification::Lease(lease)) => {
            let known = state.leased(lease.lease_key);
            line.name = known.map(|known| known.name.clone()).unwrap_or_default();
            let (from, to) =
                (words::lease(lease.current_lease_state), words::lease(lease.new_lease_state));
            line.text = format!("lease {} breaks: {from} to {to}", words::key(lease.lease_key));
            let is_awaited = lease.flags.contains(oplock_break::LeaseBreakFlags::ACK_REQUIRED);
            line.notes.push(String::from(if is_awaited {
                "lease: another client wants the file and waits until this one has acknowledged the break"
            } else {
                "lease: another client has changed the file or its name; no answer is needed"
            }));
            state.lease(lease.lease_key, lease.new_lease_state, "");
        }
        Ok(oplock_break::Notification::Oplock(oplock)) => {
            line.name = state.file(header.session_id, oplock.file_id);
            line.text = format!("the oplock breaks to {}", words::oplock(oplock.oplock_level));
        }
        Err(_) => line.text = String::from("a break whose fields are malformed"),
    }
}
