//! Management of namespaces of the distributed file system, MS-DFSNM.

mod calls;
mod changes;
mod enumeration;
mod info;
mod levels;
mod names;
mod requests;

pub use calls::{NamespaceService, call};
pub use changes::{Change, Settings, StateChange};
pub use enumeration::{Enumeration, EnumerationReply};
pub use info::{
    DfsInfo, Priority, PriorityClass, Properties, Storage, StorageState, VolumeState, encode_info,
    parse_info,
};
pub use names::{EntryPath, TargetName};
pub use requests::{
    AddLink, AddStdRoot, GetInfo, MoveLink, RemoveLink, RootTarget, SetInfo, parse_dc_address,
    parse_status,
};

use crate::SyntaxId;
use crate::interface::Interface;
use crate::security::AuthLevel;

/// The interface of MS-DFSNM 2.1.
pub static INTERFACE: Interface = Interface {
    syntax: SyntaxId::NETDFS,
    name: "DFS namespaces",
    pipes: &["netdfs"],
    secondary_address: r"\PIPE\netdfs",
    least_level: AuthLevel::NONE,
    // MS-DFSNM 2.1: RPC over SMB alone.
    level_on_tcp: None,
};

/// NetrDfsManagerGetVersion, MS-DFSNM 3.1.4.1.2.
pub const MANAGER_GET_VERSION: u16 = 0;
/// NetrDfsAdd, MS-DFSNM 3.1.4.1.3.
pub const ADD: u16 = 1;
/// NetrDfsRemove, MS-DFSNM 3.1.4.1.4.
pub const REMOVE: u16 = 2;
/// NetrDfsSetInfo, MS-DFSNM 3.1.4.1.5.
pub const SET_INFO: u16 = 3;
/// NetrDfsGetInfo, MS-DFSNM 3.1.4.1.6.
pub const GET_INFO: u16 = 4;
/// NetrDfsEnum, MS-DFSNM 3.1.4.1.7.
pub const ENUM: u16 = 5;
/// NetrDfsMove, MS-DFSNM 3.1.4.1.8.
pub const MOVE: u16 = 6;
/// NetrDfsAddFtRoot, MS-DFSNM 3.1.4.3.1.
pub const ADD_FT_ROOT: u16 = 10;
/// NetrDfsRemoveFtRoot, MS-DFSNM 3.1.4.3.2.
pub const REMOVE_FT_ROOT: u16 = 11;
/// NetrDfsAddStdRoot, MS-DFSNM 3.1.4.4.1.
pub const ADD_STD_ROOT: u16 = 12;
/// NetrDfsRemoveStdRoot, MS-DFSNM 3.1.4.4.2.
pub const REMOVE_STD_ROOT: u16 = 13;
/// NetrDfsManagerInitialize, MS-DFSNM 3.1.4.1.1.
pub const MANAGER_INITIALIZE: u16 = 14;
/// NetrDfsAddStdRootForced, MS-DFSNM 3.1.4.4.3.
pub const ADD_STD_ROOT_FORCED: u16 = 15;
/// NetrDfsGetDcAddress, MS-DFSNM 3.1.4.5.1.
pub const GET_DC_ADDRESS: u16 = 16;
/// NetrDfsSetDcAddress, MS-DFSNM 3.1.4.5.2.
pub const SET_DC_ADDRESS: u16 = 17;
/// NetrDfsFlushFtTable, MS-DFSNM 3.3.4.3.2.
pub const FLUSH_FT_TABLE: u16 = 18;
/// NetrDfsAdd2, MS-DFSNM 3.1.4.2.1.
pub const ADD2: u16 = 19;
/// NetrDfsRemove2, MS-DFSNM 3.1.4.2.2.
pub const REMOVE2: u16 = 20;
/// NetrDfsEnumEx, MS-DFSNM 3.1.4.2.3.
pub const ENUM_EX: u16 = 21;
/// NetrDfsSetInfo2, MS-DFSNM 3.1.4.2.4.
pub const SET_INFO2: u16 = 22;
/// NetrDfsAddRootTarget, MS-DFSNM 3.1.4.1.9.
pub const ADD_ROOT_TARGET: u16 = 23;
/// NetrDfsRemoveRootTarget, MS-DFSNM 3.1.4.1.10.
pub const REMOVE_ROOT_TARGET: u16 = 24;
/// NetrDfsGetSupportedNamespaceVersion, MS-DFSNM 3.1.4.1.11.
pub const GET_SUPPORTED_NAMESPACE_VERSION: u16 = 25;
