//! Parameters that a CREATE may have: MS-SMB2 2.2.13, 3.3.5.9, MS-FSA 2.1.5.1 phase 1.

use frevo_store::Name;
use frevo_store::name::{Rules, parts};
use frevo_store::security::Privileges;
use frevo_store::security::check::map_generic;
use frevo_wire::Status;
use frevo_wire::command::create::{
    CreateDisposition, CreateOptions, ImpersonationLevel, Request, ShareAccess,
};
use frevo_wire::dtyp::{AccessMask, FileAttributes};

use crate::access::throttle::shortened;
use crate::command::request;
use crate::objects::tree_connect::TreeConnect;

/// Bits of CreateOptions that no file has.
const BAD_OPTIONS: u32 = 0xFF00_0000;

/// Options that need what this server does not do: FILE_CREATE_TREE_CONNECTION,
/// opening by id, opportunistic filters.
const UNSUPPORTED_OPTIONS: u32 =
    0x0000_0080 | CreateOptions::OPEN_BY_FILE_ID.0 | CreateOptions::RESERVE_OPFILTER.0;

/// Attribute bits that no file is opened or made with: those without a name in MS-FSCC 2.6, and
/// RECALL_ON_OPEN, which only listings have. Windows: since Windows 10 v1703 all others are taken; up to
/// Windows 7 those above ENCRYPTED were refused, too. A file keeps those that its file system has.
const BAD_ATTRIBUTES: u32 = 0xFFA5_0048;

/// MS-FSA 2.1.5.1: rights that do not exist.
const BAD_ACCESS: u32 = 0x0CE0_FE00;

/// Checks the fields whose values must be known.
pub(super) fn parameters(request: &Request<'_>) -> Result<(), Status> {
    if request.impersonation_level > ImpersonationLevel::DELEGATE {
        return Err(Status::BAD_IMPERSONATION_LEVEL);
    }
    let shared = ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE;
    let options = request.create_options;
    let both = CreateOptions::DIRECTORY_FILE | CreateOptions::NON_DIRECTORY_FILE;
    if request.create_disposition > CreateDisposition::OVERWRITE_IF
        || !shared.contains(request.share_access)
        || options.0 & BAD_OPTIONS != 0
        || options.contains(both)
    {
        return Err(Status::INVALID_PARAMETER);
    }
    let is_supported = options.0 & UNSUPPORTED_OPTIONS == 0;
    let removing = AccessMask::DELETE | AccessMask::MAXIMUM_ALLOWED;
    let deletes = options.contains(CreateOptions::DELETE_ON_CLOSE);
    if is_supported && deletes && !map_generic(request.desired_access).intersects(removing) {
        // MS-FSA 2.1.5.1: DELETE_ON_CLOSE without the right DELETE is refused before the undefined
        // access bits and the name are checked.
        return Err(Status::INVALID_PARAMETER);
    }
    // The access bits are checked before the attributes, as on Windows (MS-FSA 2.1.5.1 has the
    // reverse order).
    if is_supported && request.desired_access.0 & BAD_ACCESS != 0 {
        return Err(Status::ACCESS_DENIED);
    }
    if request.file_attributes.0 & BAD_ATTRIBUTES != 0 {
        return Err(Status::INVALID_PARAMETER);
    }
    if !is_supported {
        return Err(Status::NOT_SUPPORTED);
    }
    if options.contains(CreateOptions::DIRECTORY_FILE) {
        let fitting = matches!(
            request.create_disposition,
            CreateDisposition::CREATE | CreateDisposition::OPEN | CreateDisposition::OPEN_IF
        );
        if !fitting || request.file_attributes.contains(FileAttributes::TEMPORARY) {
            return Err(Status::INVALID_PARAMETER);
        }
    }
    Ok(())
}

/// The name, as one in this share.
pub(super) fn name(text: &str, options: CreateOptions, rules: Rules) -> Result<Name, Status> {
    let name = Name::parse(text, rules)?;
    // A backslash is a letter like others in a name of the POSIX extensions.
    let separator = if rules == Rules::Posix { '/' } else { '\\' };
    if text.ends_with(separator) && options.contains(CreateOptions::NON_DIRECTORY_FILE) {
        return Err(Status::OBJECT_NAME_INVALID);
    }
    Ok(name)
}

/// MS-FSA 2.1.5.1: a stream type that is said settles whether a file or a
/// directory is meant, as the create option for it would.
pub(super) fn stream_type(
    text: &str,
    name: &Name,
    request: &mut Request<'_>,
) -> Result<(), Status> {
    let directory = match parts(text, b':').nth(2) {
        // A stream name without a type, as in "file:stream", means a data stream.
        None if name.stream().is_some() => false,
        None => return Ok(()),
        Some(kind) => !kind.eq_ignore_ascii_case("$DATA"),
    };
    let options = &mut request.create_options;
    let (said, other, clash) = if directory {
        let other = CreateOptions::NON_DIRECTORY_FILE;
        (CreateOptions::DIRECTORY_FILE, other, Status::FILE_IS_A_DIRECTORY)
    } else {
        let other = CreateOptions::DIRECTORY_FILE;
        (CreateOptions::NON_DIRECTORY_FILE, other, Status::NOT_A_DIRECTORY)
    };
    if options.contains(other) {
        return Err(clash);
    }
    *options |= said;
    parameters(request)
}

/// DesiredAccess with generic rights mapped, within what the share gives.
pub(super) fn access(request: &Request<'_>, tree: &TreeConnect) -> Result<AccessMask, Status> {
    let desired = request.desired_access;
    let options = request.create_options;
    if desired.is_empty() {
        return Err(Status::ACCESS_DENIED);
    }
    let system = AccessMask::ACCESS_SYSTEM_SECURITY;
    if desired.contains(system) && !tree.token().holds(Privileges::SECURITY) {
        return Err(Status::PRIVILEGE_NOT_HELD);
    }
    let mut mapped = map_generic(desired);
    if options.contains(CreateOptions::NO_INTERMEDIATE_BUFFERING) {
        mapped = mapped.without(AccessMask::APPEND_DATA);
    }
    let deletes = options.contains(CreateOptions::DELETE_ON_CLOSE);
    if deletes && !tree.maximal_access.contains(AccessMask::DELETE) {
        // MS-SMB2 3.3.5.9: DELETE_ON_CLOSE is refused if the share does not grant DELETE.
        return Err(Status::ACCESS_DENIED);
    }
    // MS-FSA 2.1.5.1.1, 2.1.5.1.2: a disposition that creates or overwrites implies these rights,
    // even if the request does not ask for them.
    let implied = match request.create_disposition {
        CreateDisposition::CREATE
        | CreateDisposition::OVERWRITE
        | CreateDisposition::OVERWRITE_IF => AccessMask::WRITE_DATA,
        CreateDisposition::SUPERSEDE => AccessMask::DELETE,
        _ => AccessMask::EMPTY,
    };
    if !tree.maximal_access.contains(implied) {
        return Err(Status::ACCESS_DENIED);
    }
    let beyond = mapped.without(tree.maximal_access | AccessMask::MAXIMUM_ALLOWED | system);
    if beyond.is_empty() { Ok(mapped) } else { Err(Status::ACCESS_DENIED) }
}

/// Writes a log line about an Open that is refused because the share is read-only for its user.
pub(super) fn tell_read_only(
    rq: &request::Request<'_>,
    tree: &TreeConnect,
    name: &Name,
    status: Status,
) {
    if status != Status::ACCESS_DENIED || !tree.share.read_only {
        return;
    }
    rq.tell(|left_out| {
        let user = tree.identity();
        tracing::info!(target: "frevo::access", peer = %rq.connection.peer, left_out,
            user = %user.as_ref().map_or("", |user| &*user.user), share = %tree.share.name,
            path = shortened(name.path()),
            "write refused: the share is read-only for this user; see read_only, read_list and \
             write_list");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_rights_become_specific() {
        assert_eq!(map_generic(AccessMask::GENERIC_ALL), AccessMask::FILE_ALL);
        let both = AccessMask::GENERIC_READ | AccessMask::DELETE;
        assert_eq!(map_generic(both), AccessMask::FILE_GENERIC_READ | AccessMask::DELETE);
    }

    #[test]
    fn names_with_a_trailing_backslash_are_directories() {
        assert!(name("a\\", CreateOptions::DIRECTORY_FILE, Rules::Windows).is_ok());
        let refused = name("a\\", CreateOptions::NON_DIRECTORY_FILE, Rules::Windows);
        assert_eq!(refused, Err(Status::OBJECT_NAME_INVALID));
    }

    #[test]
    fn names_of_posix_clients_with_a_trailing_slash_are_directories() {
        let file = CreateOptions::NON_DIRECTORY_FILE;
        assert!(name("a/", CreateOptions::DIRECTORY_FILE, Rules::Posix).is_ok());
        assert_eq!(name("a/", file, Rules::Posix), Err(Status::OBJECT_NAME_INVALID));
        assert!(name("a\\", file, Rules::Posix).is_ok(), "the backslash is part of the name");
    }
}
