//! IOCTL drafts and their answers.

use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::command::query_info::{self, InfoType};
use frevo_wire::command::set_info;
use frevo_wire::fscc::FileInfoClass;

use crate::client::draft::pack;
use crate::client::*;

/// Where the fields of an IOCTL request lie.
pub const INPUT_OFFSET: usize = 88;
pub const INPUT_COUNT: usize = 92;
pub const MAX_INPUT: usize = 96;
pub const OUTPUT_OFFSET: usize = 100;
pub const OUTPUT_COUNT: usize = 104;
pub const MAX_OUTPUT: usize = 108;
pub const FLAGS: usize = 112;

pub fn ioctl_draft(code: CtlCode, file: FileId, input: &[u8], max_output: u32) -> Draft {
    Draft::new(Command::IOCTL)
        .with(|w| ioctl::Request::fsctl(code, file, input, max_output).encode(w))
}

pub async fn ask(
    peer: &mut Peer,
    mount: &Mount,
    code: CtlCode,
    file: FileId,
    input: &[u8],
    max_output: u32,
) -> Reply {
    peer.on(mount, ioctl_draft(code, file, input, max_output)).await
}

/// The output of an answer that has one.
pub fn output(reply: &Reply) -> Vec<u8> {
    ioctl::Response::parse(&reply.message).unwrap().output.to_vec()
}

pub fn query_draft(class: FileInfoClass, file: FileId) -> Draft {
    let request = query_info::Request {
        info_type: InfoType::FILE,
        file_info_class: class.0,
        output_buffer_length: 4096,
        additional_information: 0,
        flags: query_info::QueryInfoFlags::EMPTY,
        file_id: file,
        input: &[],
    };
    Draft::new(Command::QUERY_INFO).with(|w| request.encode(w))
}

pub fn set_draft(class: FileInfoClass, file: FileId, buffer: &[u8]) -> Draft {
    let request = set_info::Request {
        info_type: InfoType::FILE,
        file_info_class: class.0,
        additional_information: 0,
        file_id: file,
        buffer,
    };
    Draft::new(Command::SET_INFO).with(|w| request.encode(w))
}

/// CANCEL, whose sequence number is that of what it cancels.
pub async fn cancel(peer: &Peer, mount: &Mount, id: u64, async_id: Option<u64>) {
    let cancel = Peer::cancel(id, async_id, mount.logon.id);
    peer.send_frame(&pack(&[cancel], mount.via())).await;
}
