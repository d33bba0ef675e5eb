//! Files that are kept compressed: FSCTL_GET_COMPRESSION, FSCTL_SET_COMPRESSION.

use std::sync::Arc;

use frevo_store::Fault;
use frevo_wire::Status;
use frevo_wire::command::change_notify::CompletionFilter;
use frevo_wire::dtyp::FileAttributes;
use frevo_wire::fscc::fsctl::CompressionState;
use frevo_wire::fscc::notify::NotifyAction;
use frevo_wire::fscc::query::CompressionFormat;

use super::call::{Answer, Call, NO_OUTPUT, output};
use crate::command::query_info::compression_format;

/// FSCTL_GET_COMPRESSION, MS-FSA 2.1.5.10.9.
pub(super) fn get(call: &Call<'_>) -> Answer {
    if (call.max_output as usize) < CompressionState::SIZE {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let file = call.file()?;
    let format = match file.base {
        // Only the data of a file itself is compressed.
        Some(_) => CompressionFormat::NONE,
        None => compression_format(&file.stat()?),
    };
    let state = CompressionState { format };
    Ok((output(|w| state.encode(w)), Status::SUCCESS))
}

/// FSCTL_SET_COMPRESSION, MS-FSA 2.1.5.10.30. Where nothing can be compressed, a request for
/// no compression succeeds.
pub(super) async fn set(call: &Call<'_>) -> Answer {
    let file = call.file()?;
    let able = file.vfs.volume().compresses;
    let compressed = match CompressionState::parse(call.input)?.format {
        CompressionFormat::NONE => false,
        CompressionFormat::DEFAULT | CompressionFormat::LZNT1 if able => true,
        // A file system that cannot compress returns NOT_SUPPORTED, as ReFS does on Windows.
        CompressionFormat::DEFAULT | CompressionFormat::LZNT1 => {
            return Err(Status::NOT_SUPPORTED.into());
        }
        _ => return Err(Status::INVALID_PARAMETER.into()),
    };
    let is_compressed = || {
        let stat = file.stat()?;
        Ok::<_, Status>(file.base.is_none() && stat.attributes.contains(FileAttributes::COMPRESSED))
    };
    if !able || is_compressed()? == compressed {
        return NO_OUTPUT;
    }
    let node = Arc::clone(&file.node);
    let done = call.rq.beside_core(move || node.set_compressed(compressed)).await?;
    done.map_err(Fault::status)?;
    let files = &call.rq.server().files;
    file.report(files, NotifyAction::MODIFIED, CompletionFilter::ATTRIBUTES);
    NO_OUTPUT
}
