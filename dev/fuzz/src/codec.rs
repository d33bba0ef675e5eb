//! Round trips of messages: one side encodes them with any values, the other side must decode the
//! same values.

use std::fmt::Debug;

use frevo_wire::codec::{Parsed, Writer};
use frevo_wire::command::change_notify::{self, ChangeNotifyFlags, CompletionFilter};
use frevo_wire::command::close::{self, CloseFlags};
use frevo_wire::command::create::{
    self, CreateAction, CreateDisposition, CreateFlags, CreateOptions, ImpersonationLevel,
    OplockLevel, ShareAccess,
};
use frevo_wire::command::ioctl::{self, CtlCode, IoctlFlags};
use frevo_wire::command::lock::{self, LockElement, LockFlags, LockSequence};
use frevo_wire::command::negotiate::{self, Dialect, GlobalCapabilities, SecurityMode};
use frevo_wire::command::oplock_break::{self, LeaseBreak, LeaseBreakFlags, OplockBreak};
use frevo_wire::command::query_directory::{self, QueryDirectoryFlags};
use frevo_wire::command::query_info::{self, InfoType, QueryInfoFlags};
use frevo_wire::command::session_setup::{self, SessionFlags, SessionSetupFlags};
use frevo_wire::command::tree_connect::{self, ShareCapabilities, ShareFlags, ShareType};
use frevo_wire::command::{read, set_info, write};
use frevo_wire::create_context::{CreateContexts, LeaseKey, LeaseState};
use frevo_wire::dtyp::{AccessMask, FileAttributes, FileTime, Guid};
use frevo_wire::{Command, FileId, Header, HeaderFlags, Route, Status, Utf16};

use crate::choices::Choices;
use crate::message;

/// Checks that an encoded value decodes to the same value.
fn survives<'a, T: PartialEq + Debug>(
    bytes: &'a [u8],
    value: &T,
    parse: impl Fn(&'a [u8]) -> Parsed<T>,
) {
    assert_eq!(parse(bytes).as_ref(), Ok(value));
}

macro_rules! survives {
    ($value:expr, $module:ident::$kind:ident) => {{
        let value = $value;
        let bytes = message(|w: &mut Writer<'_>| value.encode(w));
        survives(&bytes, &value, $module::$kind::parse);
    }};
}

fn file_id(c: &mut Choices<'_>) -> FileId {
    FileId { persistent: c.u64(), volatile: c.u64() }
}

fn time(c: &mut Choices<'_>) -> FileTime {
    FileTime(c.u64())
}

fn contexts(c: &mut Choices<'_>) -> CreateContexts<'static> {
    let mut list = Vec::new();
    for _ in 0..c.u8() % 6 {
        let name = [b"Fuzz".as_slice(), c.blob()].concat();
        list.push((name, c.blob()));
    }
    let list: Vec<_> = list.iter().map(|(name, data)| (&name[..], *data)).collect();
    CreateContexts::build(&list)
}

fn units(c: &mut Choices<'_>) -> Utf16<'static> {
    let bytes = c.blob();
    let pairs = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    Utf16::from_units(pairs)
}

/// By the first byte: a header, or the request or response of a command.
pub fn codec(data: &[u8]) {
    let mut choices = Choices::new(data);
    let c = &mut choices;
    match c.u8() % 16 {
        0 => header(c),
        1 => negotiate(c),
        2 => {
            let flags = SessionSetupFlags(c.u8());
            survives!(
                session_setup::Request {
                    flags,
                    security_mode: SecurityMode(u16::from(c.u8())),
                    capabilities: GlobalCapabilities(c.u32()),
                    previous_session_id: c.u64(),
                    security_buffer: c.rest(),
                },
                session_setup::Request
            );
        }
        3 => {
            let session_flags = SessionFlags(c.u16());
            let security_buffer = c.rest();
            survives!(
                session_setup::Response { session_flags, security_buffer },
                session_setup::Response
            );
        }
        4 => tree_connect(c),
        5 => create_request(c),
        6 => create_response(c),
        7 => close(c),
        8 => {
            let (file_id, offset) = (file_id(c), c.u64());
            let data = c.rest();
            let request = write::Request::new(file_id, offset, data);
            let bytes = message(|w| request.encode(w));
            survives(&bytes, &request, write::Request::parse);
        }
        9 => {
            let response = read::Response::new(c.rest());
            let bytes = message(|w| response.encode(w));
            survives(&bytes, &response, read::Response::parse);
        }
        10 => locks(c),
        11 => ioctl(c),
        12 => listing(c),
        13 => info(c),
        14 => breaks(c),
        _ => {
            let (file_id, offset, length) = (file_id(c), c.u64(), c.u32());
            let request = read::Request::new(file_id, offset, length);
            let bytes = message(|w| request.encode(w));
            survives(&bytes, &request, read::Request::parse);
        }
    }
}

fn header(c: &mut Choices<'_>) {
    let header = Header {
        credit_charge: c.u16(),
        status: Status(c.u32()),
        command: Command(c.u16()),
        credits: c.u16(),
        flags: HeaderFlags(c.u32()),
        next_command: c.u32(),
        message_id: c.u64(),
        route: Route::Sync { process_id: c.u32(), tree_id: c.u32() },
        session_id: c.u64(),
        signature: c.guid(),
    };
    if !header.flags.contains(HeaderFlags::ASYNC_COMMAND) {
        if let Ok(read) = Header::parse(&header.to_bytes()) {
            assert_eq!(read, header);
        }
    }
}

fn negotiate(c: &mut Choices<'_>) {
    let mut dialects: Vec<_> = (0..c.u8() % 8).map(|_| Dialect(c.u16())).collect();
    dialects.retain(|dialect| *dialect != Dialect::SMB_3_1_1);
    let security_mode = SecurityMode(c.u16());
    let capabilities = GlobalCapabilities(c.u32());
    let guid = Guid(c.guid());
    survives!(
        negotiate::Request {
            security_mode,
            capabilities,
            client_guid: guid,
            dialects,
            negotiate_contexts: Vec::new(),
        },
        negotiate::Request
    );
    survives!(
        negotiate::Response {
            security_mode,
            dialect_revision: Dialect::SMB_3_0,
            server_guid: guid,
            capabilities,
            max_transact_size: c.u32(),
            max_read_size: c.u32(),
            max_write_size: c.u32(),
            system_time: time(c),
            server_start_time: time(c),
            security_buffer: c.rest(),
            negotiate_contexts: Vec::new(),
        },
        negotiate::Response
    );
}

fn tree_connect(c: &mut Choices<'_>) {
    survives!(
        tree_connect::Response {
            share_type: ShareType(c.u8()),
            share_flags: ShareFlags(c.u32()),
            capabilities: ShareCapabilities(c.u32()),
            maximal_access: AccessMask(c.u32()),
        },
        tree_connect::Response
    );
    survives!(tree_connect::Request::new(units(c)), tree_connect::Request);
}

fn create_request(c: &mut Choices<'_>) {
    survives!(
        create::Request {
            requested_oplock_level: OplockLevel(c.u8()),
            impersonation_level: ImpersonationLevel(c.u32()),
            desired_access: AccessMask(c.u32()),
            file_attributes: FileAttributes(c.u32()),
            share_access: ShareAccess(c.u32()),
            create_disposition: CreateDisposition(c.u32()),
            create_options: CreateOptions(c.u32()),
            name: units(c),
            contexts: contexts(c),
        },
        create::Request
    );
}

fn create_response(c: &mut Choices<'_>) {
    survives!(
        create::Response {
            oplock_level: OplockLevel(c.u8()),
            flags: CreateFlags(c.u8()),
            create_action: CreateAction(c.u32()),
            creation_time: time(c),
            last_access_time: time(c),
            last_write_time: time(c),
            change_time: time(c),
            allocation_size: c.u64(),
            end_of_file: c.u64(),
            file_attributes: FileAttributes(c.u32()),
            file_id: file_id(c),
            contexts: contexts(c),
        },
        create::Response
    );
}

fn close(c: &mut Choices<'_>) {
    survives!(close::Request { flags: CloseFlags(c.u16()), file_id: file_id(c) }, close::Request);
    survives!(
        close::Response {
            flags: CloseFlags(c.u16()),
            creation_time: time(c),
            last_access_time: time(c),
            last_write_time: time(c),
            change_time: time(c),
            allocation_size: c.u64(),
            end_of_file: c.u64(),
            file_attributes: FileAttributes(c.u32()),
        },
        close::Response
    );
}

fn locks(c: &mut Choices<'_>) {
    let (lock_sequence, file_id) = (LockSequence(c.u32()), file_id(c));
    let mut locks = Vec::new();
    while !c.is_over() && locks.len() < 64 {
        locks.push(LockElement { offset: c.u64(), length: c.u64(), flags: LockFlags(c.u32()) });
    }
    survives!(lock::Request { lock_sequence, file_id, locks }, lock::Request);
}

fn ioctl(c: &mut Choices<'_>) {
    let (ctl_code, file_id) = (CtlCode(c.u32()), file_id(c));
    let (input, output) = (c.blob(), c.blob());
    survives!(
        ioctl::Request {
            ctl_code,
            file_id,
            max_input_response: c.u32(),
            max_output_response: c.u32(),
            flags: IoctlFlags(c.u32()),
            input,
            output_count: 0,
        },
        ioctl::Request
    );
    survives!(ioctl::Response { ctl_code, file_id, input, output }, ioctl::Response);
}

fn listing(c: &mut Choices<'_>) {
    survives!(
        query_directory::Request {
            file_information_class: c.u8(),
            flags: QueryDirectoryFlags(c.u8()),
            file_index: c.u32(),
            file_id: file_id(c),
            output_buffer_length: c.u32(),
            file_name: units(c),
        },
        query_directory::Request
    );
    survives!(
        change_notify::Request {
            flags: ChangeNotifyFlags(c.u16()),
            output_buffer_length: c.u32(),
            file_id: file_id(c),
            completion_filter: CompletionFilter(c.u32()),
        },
        change_notify::Request
    );
    let output = c.rest();
    survives!(query_directory::Response { output }, query_directory::Response);
    survives!(change_notify::Response { output }, change_notify::Response);
}

fn info(c: &mut Choices<'_>) {
    survives!(
        query_info::Request {
            info_type: InfoType::QUOTA,
            file_info_class: c.u8(),
            output_buffer_length: c.u32(),
            additional_information: c.u32(),
            flags: QueryInfoFlags(c.u32()),
            file_id: file_id(c),
            input: c.blob(),
        },
        query_info::Request
    );
    survives!(
        set_info::Request {
            info_type: InfoType(c.u8()),
            file_info_class: c.u8(),
            additional_information: c.u32(),
            file_id: file_id(c),
            buffer: c.blob(),
        },
        set_info::Request
    );
    survives!(query_info::Response { output: c.rest() }, query_info::Response);
}

fn breaks(c: &mut Choices<'_>) {
    let oplock = OplockBreak { oplock_level: OplockLevel(c.u8()), file_id: file_id(c) };
    let lease_key = LeaseKey(c.guid());
    let lease = LeaseBreak { lease_key, lease_state: LeaseState(c.u32()) };
    survives!(oplock_break::Notification::Oplock(oplock), oplock_break::Notification);
    survives!(oplock_break::Request::Oplock(oplock), oplock_break::Request);
    survives!(oplock_break::Request::Lease(lease), oplock_break::Request);
    survives!(oplock_break::Response::Lease(lease), oplock_break::Response);
    survives!(
        oplock_break::Notification::Lease(oplock_break::LeaseBreakNotification {
            new_epoch: c.u16(),
            flags: LeaseBreakFlags(c.u32()),
            lease_key,
            current_lease_state: LeaseState(c.u32()),
            new_lease_state: LeaseState(c.u32()),
        }),
        oplock_break::Notification
    );
}
