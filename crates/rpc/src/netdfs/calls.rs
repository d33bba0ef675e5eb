//! The calls of MS-DFSNM, and the data that the server supplies for them.

use super::info::DfsInfo;
use super::requests::{
    AddLink, AddStdRoot, GetInfo, MoveLink, RemoveLink, RootTarget, SetInfo, encode_listed,
    encode_status, parse_dc_address, parse_ft_root, parse_ignored,
};
use super::{self as netdfs, Change, EntryPath, Enumeration, EnumerationReply, VolumeState};
use super::{encode_info, levels};
use crate::interface::Answer;
use crate::limits::{MAX_NAMESPACE_BYTES, NAMESPACE_ENTRIES_AT_ONCE};
use crate::{FaultStatus, WinError};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::codec::Parsed;
use frevo_wire::ndr::{NdrReader, NdrWriter};

/// The version of a server with the opnums 0 to 25, MS-DFSNM 3.1.4.1.2.
const VERSION: u32 = 6;
/// NamespaceMajorVersion and NamespaceMinorVersion of stand-alone roots, MS-DFSNM 2.2.3.10 note 7.
const STAND_ALONE: (u32, u32) = (1, 2);

/// The namespaces of a server: its data, and its changes, for one caller.
pub trait NamespaceService {
    /// The name of the server in the paths that it tells.
    fn host(&self) -> String;
    /// True for a name of the domain that the server is a member of.
    fn is_domain(&self, name: &str) -> bool;
    /// The names of the namespaces that the caller may know of, in an order that stays.
    fn namespaces(&self) -> Vec<String>;
    /// Returns a root or a link. None for what is not there, or not for the caller.
    fn entry(&self, path: &EntryPath) -> Option<DfsInfo>;
    /// Returns at most `most` entries of a namespace, beginning with that of the index `from`: the root has
    /// the index 0, the links come after it in an order that stays.
    fn entries(&self, namespace: &str, from: usize, most: usize) -> Vec<DfsInfo>;
    /// True if the caller may change the namespaces: a member of Administrators.
    fn may_manage(&self) -> bool;
    /// Receives the attempt of a caller that may not change the namespaces, for the audit log.
    fn refused(&self, _change: &Change) {}
    /// Stores and applies a change.
    ///
    /// # Errors
    /// NOT_FOUND for a namespace or a link that is not there, FILE_NOT_FOUND for a target, FILE_EXISTS for a
    /// link, a target or a root that is there, NET_NAME_NOT_FOUND for a root without a share, ACCESS_DENIED
    /// where the server does not permit it.
    fn change(&self, change: &Change) -> Result<(), WinError>;
}

/// Answers a call of MS-DFSNM.
///
/// # Errors
/// The fault that is sent instead of an answer.
pub fn call(opnum: u16, stub: &[u8], service: &dyn NamespaceService) -> Answer {
    Ok(match opnum {
        netdfs::MANAGER_GET_VERSION => encode_status(WinError(VERSION)),
        netdfs::ADD | netdfs::ADD2 => {
            let request = AddLink::parse(opnum, stub)?;
            let status = changed(service, Change::of_add(&request));
            reply(opnum, request.has_root_list, status)
        }
        netdfs::REMOVE | netdfs::REMOVE2 => {
            let request = RemoveLink::parse(opnum, stub)?;
            let status = changed(service, Change::of_remove(&request));
            reply(opnum, request.has_root_list, status)
        }
        netdfs::SET_INFO | netdfs::SET_INFO2 => {
            let request = SetInfo::parse(opnum, stub)?;
            let status = changed(service, Change::of_set(&request));
            reply(opnum, request.has_root_list, status)
        }
        netdfs::GET_INFO => {
            let request = GetInfo::parse(stub)?;
            encode_info(request.level, get_info(&request, service).as_ref().map_err(|why| *why))
        }
        netdfs::ENUM => enumerate(&Enumeration::parse(stub)?, service),
        netdfs::ENUM_EX => enumerate(&Enumeration::parse_ex(stub)?, service),
        netdfs::MOVE => encode_status(changed(service, Change::of_move(&MoveLink::parse(stub)?))),
        netdfs::ADD_STD_ROOT => {
            let request = AddStdRoot::parse(opnum, stub)?;
            let comment = request.comment.unwrap_or_default();
            encode_status(changed(service, Change::of_std_root(&request.share, comment)))
        }
        netdfs::REMOVE_STD_ROOT => {
            let request = AddStdRoot::parse_remove(stub)?;
            encode_status(changed(service, Change::of_removed_root(&request.share)))
        }
        netdfs::ADD_ROOT_TARGET => {
            let request = RootTarget::parse_add(stub)?;
            encode_status(match changed(service, Change::of_root_target(&request)) {
                // MS-DFSNM 3.1.4.1.9: this call has a code of its own.
                WinError::FILE_EXISTS => WinError::ALREADY_EXISTS,
                status => status,
            })
        }
        netdfs::REMOVE_ROOT_TARGET => {
            let request = RootTarget::parse_remove(stub)?;
            encode_status(changed(service, Change::of_removed_root_target(&request)))
        }
        netdfs::GET_SUPPORTED_NAMESPACE_VERSION => supported_version(stub)?,
        _ => unsupported(opnum, stub, service)?,
    })
}

/// Answers the calls that a stand-alone server does not support, and faults where there is no call.
fn unsupported(opnum: u16, stub: &[u8], service: &dyn NamespaceService) -> Answer {
    Ok(match opnum {
        // MS-DFSNM 3.1.4.3: roots of domains, whose data are in the directory of the domain.
        netdfs::ADD_FT_ROOT | netdfs::REMOVE_FT_ROOT => {
            encode_listed(parse_ft_root(opnum, stub)?, refusal(service))
        }
        // MS-DFSNM 3.1.4.1.1 note 36.
        netdfs::MANAGER_INITIALIZE => {
            parse_ignored(stub, 1, 1)?;
            encode_status(refusal(service))
        }
        // MS-DFSNM 3.1.4.4.3 note 124: a root needs a share.
        netdfs::ADD_STD_ROOT_FORCED => {
            AddStdRoot::parse(opnum, stub)?;
            encode_status(refusal(service))
        }
        // MS-DFSNM 3.1.4.5.1 note 128: there is no domain controller, so the name is blank. IsRoot is false,
        // because the server can have several namespaces.
        netdfs::GET_DC_ADDRESS => {
            let timeout = parse_dc_address(stub)?;
            let mut w = NdrWriter::new();
            w.unique_string(Some("")).u8(0).u32(timeout).u32(WinError::SUCCESS.0);
            w.into_stub()
        }
        // MS-DFSNM 3.1.4.5.2: a method without an effect. There is no domain controller to choose.
        netdfs::SET_DC_ADDRESS => {
            parse_ignored(stub, 2, 2)?;
            let may = service.may_manage();
            encode_status(if may { WinError::SUCCESS } else { WinError::ACCESS_DENIED })
        }
        // MS-DFSNM 3.3.4.3.2: a server that is no domain controller must refuse.
        netdfs::FLUSH_FT_TABLE => {
            parse_ignored(stub, 2, 0)?;
            encode_status(WinError::NOT_SUPPORTED)
        }
        _ => return Err(FaultStatus::OP_RNG_ERROR),
    })
}

/// The status of a change that nobody can make here.
fn refusal(service: &dyn NamespaceService) -> WinError {
    if service.may_manage() { WinError::NOT_SUPPORTED } else { WinError::ACCESS_DENIED }
}

fn reply(opnum: u16, has_root_list: bool, status: WinError) -> Vec<u8> {
    match opnum {
        netdfs::ADD2 | netdfs::REMOVE2 | netdfs::SET_INFO2 => encode_listed(has_root_list, status),
        _ => encode_status(status),
    }
}

/// Makes a change for a caller who may, and returns the status.
fn changed(service: &dyn NamespaceService, change: Result<Change, WinError>) -> WinError {
    if !service.may_manage() {
        if let Ok(change) = &change {
            service.refused(change);
        }
        return WinError::ACCESS_DENIED;
    }
    let change = match change {
        Ok(change) => change,
        Err(status) => return status,
    };
    // MS-DFSNM 3.1.4.1.3 to 3.1.4.1.5: the answer for a namespace of a domain.
    if change.server().is_some_and(|server| service.is_domain(server)) {
        return WinError::NOT_SUPPORTED;
    }
    service.change(&change).err().unwrap_or(WinError::SUCCESS)
}

/// NetrDfsGetInfo, MS-DFSNM 3.1.4.1.6.
fn get_info(request: &GetInfo, service: &dyn NamespaceService) -> Result<DfsInfo, WinError> {
    let path = EntryPath::of_entry(&request.path)?;
    let is_null = request.server.is_none() && request.share.is_none();
    let is_valid = match request.level {
        1..=6 | 8 | 9 | 100 => true,
        7 => path.is_root(),
        50 => path.is_root() && is_null,
        // A root has no security descriptor.
        150 => !path.is_root(),
        _ => false,
    };
    if !is_valid {
        return Err(WinError::INVALID_PARAMETER);
    }
    if service.is_domain(&path.server) {
        return Err(WinError::NOT_SUPPORTED);
    }
    let entry = service.entry(&path).ok_or(WinError::NOT_FOUND)?;
    let (major_version, minor_version) = STAND_ALONE;
    Ok(DfsInfo { major_version, minor_version, ..entry })
}

/// NetrDfsEnum and NetrDfsEnumEx, MS-DFSNM 3.1.4.1.7 and 3.1.4.2.3.
fn enumerate(request: &Enumeration, service: &dyn NamespaceService) -> Vec<u8> {
    let listed = if request.has_info {
        listed(request, service)
    } else {
        // Without DfsEnum there is no place for entries.
        Err(WinError::INVALID_PARAMETER)
    };
    let (entries, next, status) = match listed {
        Ok(Listed { entries, next, status }) => (entries, next, status),
        Err(status) => (Vec::new(), None, status),
    };
    EnumerationReply {
        entries: request.has_info.then_some(entries),
        resume: request.resume.map(|resume| next.unwrap_or(resume)),
        status,
    }
    .encode(request.level)
}

/// The entries that an enumeration returns.
struct Listed {
    entries: Vec<DfsInfo>,
    /// The handle by which the enumeration goes on; None if it does not change.
    next: Option<u32>,
    status: WinError,
}

fn listed(request: &Enumeration, service: &dyn NamespaceService) -> Result<Listed, WinError> {
    let fields = levels::of_enumeration(request.level);
    // MS-DFSNM 3.1.4.2.3: the level 200 is for domain controllers.
    let fields = fields.filter(|_| request.level != 200).ok_or(WinError::INVALID_PARAMETER)?;
    let path = request.path.as_deref().map(EntryPath::parse).transpose()?;
    if path.as_ref().is_some_and(|path| service.is_domain(&path.server)) {
        return Err(WinError::NOT_SUPPORTED);
    }
    let all = service.namespaces();
    let (start, most) = (request.start(), request.most());
    let mut room = MAX_NAMESPACE_BYTES;
    let mut fits = |entry: &DfsInfo| {
        let left = room.checked_sub(entry.size_at(fields));
        room = left.unwrap_or(room);
        left.is_some()
    };
    let mut entries = Vec::new();
    let mut is_cut = false;
    if request.level == 300 {
        if path.is_none() && all.is_empty() {
            return Err(WinError::NOT_FOUND);
        }
        let roots = all.iter().map(|name| root_of(&service.host(), name)).skip(start);
        entries.extend(roots.take(most).take_while(&mut fits));
    } else {
        let namespace = chosen(path.as_ref(), &all)?;
        while entries.len() < most && !is_cut {
            let wanted = most.saturating_sub(entries.len()).min(NAMESPACE_ENTRIES_AT_ONCE);
            let more = service.entries(namespace, start.saturating_add(entries.len()), wanted);
            let (there, told) = (more.len(), entries.len());
            entries.extend(more.into_iter().take_while(&mut fits));
            is_cut = entries.len().saturating_sub(told) < there;
            if there < wanted {
                break;
            }
        }
    }
    if entries.is_empty() {
        return Err(WinError::NO_MORE_ITEMS);
    }
    let next = u32::try_from(start.saturating_add(entries.len())).unwrap_or(u32::MAX);
    // Deviation: MS-DFSNM 3.1.4.1.7 has all entries in one answer. A longer one is cut, which a caller
    // without a handle learns by this status.
    let is_partial = is_cut && request.resume.is_none();
    let status = if is_partial { WinError::MORE_DATA } else { WinError::SUCCESS };
    Ok(Listed { entries, next: Some(next), status })
}

/// DFS_INFO_300 of a namespace.
fn root_of(host: &str, name: &str) -> DfsInfo {
    let path = format!(r"\\{host}\{name}");
    DfsInfo { path, state: VolumeState::FLAVOR_STANDALONE, ..DfsInfo::default() }
}

/// The namespace that an enumeration is of.
fn chosen<'a>(path: Option<&EntryPath>, all: &'a [String]) -> Result<&'a str, WinError> {
    let is_named = path.is_some_and(|path| !path.namespace.is_empty());
    match (path, all) {
        (Some(path), all) if is_named => {
            let is_it = |name: &&String| frevo_wire::fscc::eq_ignore_case(name, &path.namespace);
            all.iter().find(is_it).map(String::as_str).ok_or(WinError::NOT_FOUND)
        }
        // MS-DFSNM 3.1.4.2.3: without a name it is the only one.
        (_, [only]) => Ok(only),
        (Some(_), _) | (None, []) => Err(WinError::NOT_FOUND),
        // MS-DFSNM 3.1.4.1.7: the call has no argument that would name one of several.
        (None, _) => Err(WinError::DEVICE_NOT_AVAILABLE),
    }
}

/// NetrDfsGetSupportedNamespaceVersion, MS-DFSNM 3.1.4.1.11.
fn supported_version(stub: &[u8]) -> Parsed<Vec<u8>> {
    let mut r = NdrReader::new(stub);
    let origin = r.u16("Origin")?;
    r.unique_string("pName")?;
    // DFS_NAMESPACE_VERSION_ORIGIN_SERVER has the version of stand-alone roots; a domain has none.
    let ((major, minor), status) = match origin {
        1 => (STAND_ALONE, WinError::SUCCESS),
        2 => ((0, 0), WinError::SUCCESS),
        _ => ((0, 0), WinError::INVALID_PARAMETER),
    };
    let mut w = NdrWriter::new();
    let no_capabilities = 0_u64.to_le_bytes();
    w.u32(0).u32(0).fixed(&no_capabilities);
    w.u32(major).u32(minor).fixed(&no_capabilities).u32(status.0);
    Ok(w.into_stub())
}
