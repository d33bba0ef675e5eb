//! Encodes and parses messages with all values of all fields.

use super::message;
use crate::codec::Writer;
use crate::command::change_notify::{ChangeNotifyFlags, CompletionFilter};
use crate::command::close::CloseFlags;
use crate::command::create::{
    CreateAction, CreateDisposition, CreateFlags, CreateOptions, ImpersonationLevel, OplockLevel,
    ShareAccess,
};
use crate::command::ioctl::{CtlCode, IoctlFlags};
use crate::command::lock::{LockElement, LockFlags, LockSequence};
use crate::command::negotiate::{Dialect, GlobalCapabilities, SecurityMode};
use crate::command::oplock_break::{
    LeaseBreak, LeaseBreakFlags, LeaseBreakNotification, OplockBreak,
};
use crate::command::query_directory::QueryDirectoryFlags;
use crate::command::query_info::{InfoType, QueryInfoFlags, QueryQuotaInfo, QuotaSids};
use crate::command::read::{Channel, ReadFlags, ReadResponseFlags, response_head};
use crate::command::server_to_client_notification::{Notification, NotificationType};
use crate::command::session_setup::{SessionFlags, SessionSetupFlags};
use crate::command::tree_connect::{ShareCapabilities, ShareFlags, ShareType};
use crate::command::write::WriteFlags;
use crate::command::{
    change_notify, close, create, flush, ioctl, lock, negotiate, oplock_break, output_head,
    query_directory, query_info, read, session_setup, set_info, tree_connect, write,
};
use crate::create_context::{CreateContexts, LeaseKey, LeaseState};
use crate::dtyp::{AccessMask, FileAttributes, FileTime, Guid};
use crate::file_id::FileId;
use crate::negotiate_context::{
    Cipher, CompressionAlgorithm, CompressionCapabilityFlags, HashAlgorithm, NegotiateContext,
    NegotiateContextType, RdmaTransformId, SigningAlgorithm, TransportCapabilityFlags,
};
use crate::rdma_transform::{RdmaCryptoTransform, RdmaTransform, RdmaTransformType};
use crate::utf16::Utf16;
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec::Vec;

/// Encodes, parses and compares. Every shorter prefix of the message is refused, unless only
/// optional bytes are missing.
macro_rules! survives {
    ($value:expr, $($parse:tt)+) => {{
        let value = $value;
        let bytes = message(|w| value.encode(w));
        prop_assert_eq!($($parse)+(&bytes), Ok(value));
        for cut in 0..bytes.len() {
            let _ = $($parse)+(&bytes[..cut]);
        }
        // The first 65 bytes are less than the fixed part, so they must be refused.
        prop_assert!($($parse)+(&bytes[..65]).is_err());
    }};
}

prop_compose! {
    pub(super) fn file_id()(persistent: u64, volatile: u64) -> FileId {
        FileId { persistent, volatile }
    }
}

fn utf16() -> impl Strategy<Value = Utf16<'static>> {
    vec(any::<u16>(), 0..20).prop_map(Utf16::from_units)
}

fn blob() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..80)
}

fn contexts() -> impl Strategy<Value = CreateContexts<'static>> {
    vec((vec(any::<u8>(), 4..20), vec(any::<u8>(), 0..60)), 0..5).prop_map(|list| {
        let list: Vec<_> = list.iter().map(|(name, data)| (&name[..], &data[..])).collect();
        CreateContexts::build(&list)
    })
}

fn negotiate_context(data: &[u8], ids: &[u16], which: u8, flags: u32) -> NegotiateContext<'static> {
    let data: &'static [u8] = Vec::leak(data.to_vec());
    match which % 9 {
        0 => NegotiateContext::PreauthIntegrity {
            hash_algorithms: ids.iter().copied().map(HashAlgorithm).collect(),
            salt: data,
        },
        1 => NegotiateContext::Encryption(ids.iter().copied().map(Cipher).collect()),
        2 => NegotiateContext::Compression {
            flags: CompressionCapabilityFlags(flags),
            algorithms: ids.iter().copied().map(CompressionAlgorithm).collect(),
        },
        3 => NegotiateContext::Netname(Utf16::from_units(ids.iter().copied())),
        4 => NegotiateContext::Transport(TransportCapabilityFlags(flags)),
        5 => NegotiateContext::RdmaTransform(ids.iter().copied().map(RdmaTransformId).collect()),
        6 => NegotiateContext::Signing(ids.iter().copied().map(SigningAlgorithm).collect()),
        7 => NegotiateContext::Posix(data),
        _ => NegotiateContext::Unknown { kind: NegotiateContextType(0x4242), data },
    }
}

fn negotiate_contexts() -> impl Strategy<Value = Vec<NegotiateContext<'static>>> {
    let one = (vec(any::<u8>(), 0..20), vec(any::<u16>(), 0..6), any::<u8>(), any::<u32>())
        .prop_map(|(data, ids, which, flags)| negotiate_context(&data, &ids, which, flags));
    vec(one, 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn negotiate(
        modes: (u16, u32), guid: [u8; 16], dialects in vec(any::<u16>(), 0..8),
        contexts in negotiate_contexts(), token in blob(), sizes: [u32; 3], times: [u64; 2],
        has_311: bool,
    ) {
        let mut dialects: Vec<_> = dialects.into_iter().map(Dialect).collect();
        dialects.retain(|&dialect| dialect != Dialect::SMB_3_1_1);
        if has_311 {
            dialects.push(Dialect::SMB_3_1_1);
        }
        let contexts = if has_311 { contexts } else { Vec::new() };
        survives!(negotiate::Request {
            security_mode: SecurityMode(modes.0),
            capabilities: GlobalCapabilities(modes.1),
            client_guid: Guid(guid),
            dialects,
            negotiate_contexts: contexts.clone(),
        }, negotiate::Request::parse);
        survives!(negotiate::Response {
            security_mode: SecurityMode(modes.0),
            dialect_revision: if has_311 { Dialect::SMB_3_1_1 } else { Dialect::SMB_3_0 },
            server_guid: Guid(guid),
            capabilities: GlobalCapabilities(modes.1),
            max_transact_size: sizes[0],
            max_read_size: sizes[1],
            max_write_size: sizes[2],
            system_time: FileTime(times[0]),
            server_start_time: FileTime(times[1]),
            security_buffer: &token,
            negotiate_contexts: contexts,
        }, negotiate::Response::parse);
    }

    #[test]
    fn session_setup(flags: u8, mode: u8, caps: u32, previous: u64, kind: u16, token in blob()) {
        survives!(session_setup::Request {
            flags: SessionSetupFlags(flags),
            security_mode: SecurityMode(mode.into()),
            capabilities: GlobalCapabilities(caps),
            previous_session_id: previous,
            security_buffer: &token,
        }, session_setup::Request::parse);
        survives!(session_setup::Response {
            session_flags: SessionFlags(kind),
            security_buffer: &token,
        }, session_setup::Response::parse);
    }

    #[test]
    fn tree_connect(path in utf16(), share_type: u8, flags: u32, caps: u32, access: u32) {
        survives!(tree_connect::Request::new(path), tree_connect::Request::parse);
        survives!(tree_connect::Response {
            share_type: ShareType(share_type),
            share_flags: ShareFlags(flags),
            capabilities: ShareCapabilities(caps),
            maximal_access: AccessMask(access),
        }, tree_connect::Response::parse);
    }

    #[test]
    fn create_request(
        oplock: u8, words: [u32; 6], name in utf16(), contexts in contexts(),
    ) {
        survives!(create::Request {
            requested_oplock_level: OplockLevel(oplock),
            impersonation_level: ImpersonationLevel(words[0]),
            desired_access: AccessMask(words[1]),
            file_attributes: FileAttributes(words[2]),
            share_access: ShareAccess(words[3]),
            create_disposition: CreateDisposition(words[4]),
            create_options: CreateOptions(words[5]),
            name,
            contexts,
        }, create::Request::parse);
    }

    #[test]
    fn create_response_and_close(
        bytes: [u8; 2], words: [u32; 2], longs: [u64; 6], file_id in file_id(),
        contexts in contexts(),
    ) {
        survives!(create::Response {
            oplock_level: OplockLevel(bytes[0]),
            flags: CreateFlags(bytes[1]),
            create_action: CreateAction(words[0]),
            creation_time: FileTime(longs[0]),
            last_access_time: FileTime(longs[1]),
            last_write_time: FileTime(longs[2]),
            change_time: FileTime(longs[3]),
            allocation_size: longs[4],
            end_of_file: longs[5],
            file_attributes: FileAttributes(words[1]),
            file_id,
            contexts,
        }, create::Response::parse);
        survives!(close::Request { flags: CloseFlags(bytes[0].into()), file_id },
            close::Request::parse);
        survives!(close::Response {
            flags: CloseFlags(bytes[1].into()),
            creation_time: FileTime(longs[5]),
            last_access_time: FileTime(longs[4]),
            last_write_time: FileTime(longs[3]),
            change_time: FileTime(longs[2]),
            allocation_size: longs[1],
            end_of_file: longs[0],
            file_attributes: FileAttributes(words[0]),
        }, close::Response::parse);
        survives!(flush::Request { reserved1: bytes[0].into(), file_id }, flush::Request::parse);
    }

    #[test]
    fn read(
        bytes: [u8; 2], words: [u32; 4], offset: u64, file_id in file_id(), channel in 0u32..5,
        info in blob(), data in blob(),
    ) {
        let channel = Channel(channel);
        let has_info = (1..=3).contains(&channel.0);
        let channel_info: &[u8] = if has_info { &info } else { &[] };
        survives!(read::Request {
            padding: bytes[0],
            flags: ReadFlags(bytes[1]),
            length: words[0],
            offset,
            file_id,
            minimum_count: words[1],
            channel,
            remaining_bytes: words[2],
            channel_info,
        }, read::Request::parse);
        let mut response = read::Response::new(&data);
        response.data_remaining = words[0];
        response.flags = ReadResponseFlags(words[1]);
        let bytes = message(|w| response.encode(w));
        let head = response_head(data.len() as u32, words[0], ReadResponseFlags(words[1]));
        prop_assert_eq!(&bytes[64..80], &head[..]);
        let parsed = read::Response::parse(&bytes).unwrap();
        prop_assert_eq!(&bytes[parsed.data_range.clone()], parsed.data);
        prop_assert_eq!(parsed, response);
    }

    #[test]
    fn write(
        words: [u32; 2], offset: u64, file_id in file_id(), channel in 0u32..5, info in blob(),
        data in blob(),
    ) {
        let mut request = write::Request::new(file_id, offset, &data);
        request.flags = WriteFlags(words[0]);
        request.remaining_bytes = words[1];
        request.channel = Channel(channel);
        if (1..=3).contains(&channel) {
            request.channel_info = &info;
        }
        if channel > 0 && data.is_empty() {
            // MS-SMB2 3.2.4.7: RDMA moves the data, so DataOffset is zero.
            request.data_offset = 0;
        }
        let bytes = message(|w| request.encode(w));
        let parsed = write::Request::parse(&bytes).unwrap();
        prop_assert_eq!(&bytes[parsed.data_range.clone()], parsed.data);
        prop_assert_eq!(parsed, request);
        survives!(write::Response { count: words[0] }, write::Response::parse);
    }

    #[test]
    fn rdma_transform(
        channel in 0u32..3, transforms in vec((any::<u16>(), blob(), blob()), 1..=8),
        descriptors in blob(),
    ) {
        let transform = RdmaTransform {
            channel: Channel(channel),
            transforms: transforms
                .iter()
                .map(|(kind, signature, nonce)| RdmaCryptoTransform {
                    transform_type: RdmaTransformType(*kind),
                    signature,
                    nonce,
                })
                .collect(),
            descriptors: if channel == 0 { &[] } else { &descriptors },
        };
        let mut bytes = Vec::new();
        transform.encode(&mut Writer::new(&mut bytes));
        prop_assert_eq!(RdmaTransform::parse(&bytes), Ok(transform));
        for cut in 0..bytes.len() {
            let _ = RdmaTransform::parse(&bytes[..cut]);
        }
    }

    #[test]
    fn lock(
        sequence: u32, file_id in file_id(), locks in vec(any::<(u64, u64, u32)>(), 0..6),
    ) {
        let locks = locks.into_iter().map(|(offset, length, flags)| LockElement {
            offset, length, flags: LockFlags(flags),
        });
        let lock_sequence = LockSequence(sequence);
        survives!(lock::Request { lock_sequence, file_id, locks: locks.collect() },
            lock::Request::parse);
        let again = LockSequence::new(lock_sequence.number(), lock_sequence.index());
        prop_assert_eq!(again, lock_sequence);
    }

    #[test]
    fn ioctl(words: [u32; 4], file_id in file_id(), input in blob(), output in blob()) {
        survives!(ioctl::Request {
            ctl_code: CtlCode(words[0]),
            file_id,
            max_input_response: words[1],
            max_output_response: words[2],
            flags: IoctlFlags(words[3]),
            input: &input,
            output_count: 0,
        }, ioctl::Request::parse);
        survives!(ioctl::Response {
            ctl_code: CtlCode(words[0]), file_id, input: &input, output: &output,
        }, ioctl::Response::parse);
    }

    #[test]
    fn query_directory_and_change_notify(
        bytes: [u8; 2], words: [u32; 2], file_id in file_id(), file_name in utf16(),
        output in blob(),
    ) {
        survives!(query_directory::Request {
            file_information_class: bytes[0],
            flags: QueryDirectoryFlags(bytes[1]),
            file_index: words[0],
            file_id,
            output_buffer_length: words[1],
            file_name,
        }, query_directory::Request::parse);
        survives!(query_directory::Response { output: &output }, query_directory::Response::parse);
        survives!(change_notify::Request {
            flags: ChangeNotifyFlags(bytes[0].into()),
            output_buffer_length: words[0],
            file_id,
            completion_filter: CompletionFilter(words[1]),
        }, change_notify::Request::parse);
        survives!(change_notify::Response { output: &output }, change_notify::Response::parse);
        survives!(query_info::Response { output: &output }, query_info::Response::parse);
        let bytes = message(|w| query_info::Response { output: &output }.encode(w));
        prop_assert_eq!(&bytes[64..72], &output_head(output.len() as u32)[..]);
    }

    #[test]
    fn query_and_set_info(
        info_type: u8, class: u8, words: [u32; 3], file_id in file_id(), buffer in blob(),
    ) {
        let info_type = InfoType(info_type);
        survives!(query_info::Request {
            info_type: InfoType::QUOTA,
            file_info_class: class,
            output_buffer_length: words[0],
            additional_information: words[1],
            flags: QueryInfoFlags(words[2]),
            file_id,
            input: &buffer,
        }, query_info::Request::parse);
        survives!(set_info::Request {
            info_type,
            file_info_class: class,
            additional_information: words[0],
            file_id,
            buffer: &buffer,
        }, set_info::Request::parse);
    }

    #[test]
    fn query_quota_info(return_single: bool, restart_scan: bool, which in 0..3, sids in blob()) {
        prop_assume!(!sids.is_empty());
        let sids = match which {
            0 => QuotaSids::All,
            1 => QuotaSids::List(&sids),
            _ => QuotaSids::From(&sids),
        };
        let info = QueryQuotaInfo { return_single, restart_scan, sids };
        let mut bytes = Vec::new();
        info.encode(&mut Writer::new(&mut bytes));
        prop_assert_eq!(QueryQuotaInfo::parse(&bytes), Ok(info));
    }

    #[test]
    fn breaks(level: u8, key: [u8; 16], words: [u32; 3], epoch: u16, file_id in file_id()) {
        let oplock = OplockBreak { oplock_level: OplockLevel(level), file_id };
        let lease_key = LeaseKey(key);
        let lease = LeaseBreak { lease_key, lease_state: LeaseState(words[0]) };
        survives!(oplock_break::Notification::Oplock(oplock), oplock_break::Notification::parse);
        survives!(oplock_break::Request::Oplock(oplock), oplock_break::Request::parse);
        survives!(oplock_break::Request::Lease(lease), oplock_break::Request::parse);
        survives!(oplock_break::Response::Oplock(oplock), oplock_break::Response::parse);
        survives!(oplock_break::Response::Lease(lease), oplock_break::Response::parse);
        survives!(oplock_break::Notification::Lease(LeaseBreakNotification {
            new_epoch: epoch,
            flags: LeaseBreakFlags(words[0]),
            lease_key,
            current_lease_state: LeaseState(words[1]),
            new_lease_state: LeaseState(words[2]),
        }), oplock_break::Notification::parse);
        survives!(Notification { notification_type: NotificationType(words[0]) },
            Notification::parse);
    }
}
