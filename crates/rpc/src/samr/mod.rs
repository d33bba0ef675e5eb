//! The accounts of a machine, MS-SAMR: the calls of programs that show or select users and groups.
//! They cannot change anything but the password of the caller.

mod calls;
mod change;
mod display;
mod display_calls;
mod info;
mod reply;
mod request;

pub use calls::{Sam, Samr};
pub use change::{ChangePassword, ChangePasswordAes, PasswordChange};
pub use display::{Display, DisplayIndex, QueryDisplay, Shown, Totals, encode_display};
pub use info::{
    AliasInformation, DomainFacts, DomainInformation, GroupInformation, UserFacts, UserInformation,
    encode_alias, encode_domain, encode_group, encode_password_information, encode_user,
};
pub use reply::{
    Entry, GROUP_ATTRIBUTES, encode_enumeration, encode_groups, encode_members, encode_names,
    encode_numbers, encode_rids, encode_sid, encode_sids,
};
pub use request::{
    Connect, Enumerate, GetAliasMembership, LookupDomain, LookupIds, LookupNames, OnHandle,
    OpenAccount, OpenDomain,
};

use crate::SyntaxId;
use crate::interface::Interface;
use crate::security::AuthLevel;

/// The interface of MS-SAMR 2.1.
pub static INTERFACE: Interface = Interface {
    syntax: SyntaxId::SAMR,
    name: "Security accounts manager",
    pipes: &["samr"],
    secondary_address: r"\PIPE\lsass",
    least_level: AuthLevel::NONE,
    // MS-SAMR 2.1: on TCP only the level PRIVACY is allowed, and on a pipe also NONE.
    level_on_tcp: Some(AuthLevel::PRIVACY),
};

/// SamrConnect, MS-SAMR 3.1.5.1.4.
pub const CONNECT: u16 = 0;
/// SamrCloseHandle, 3.1.5.13.1.
pub const CLOSE_HANDLE: u16 = 1;
/// SamrQuerySecurityObject, 3.1.5.12.2.
pub const QUERY_SECURITY_OBJECT: u16 = 3;
/// SamrLookupDomainInSamServer, 3.1.5.11.1.
pub const LOOKUP_DOMAIN: u16 = 5;
/// SamrEnumerateDomainsInSamServer, 3.1.5.2.1.
pub const ENUMERATE_DOMAINS: u16 = 6;
/// SamrOpenDomain, 3.1.5.1.5.
pub const OPEN_DOMAIN: u16 = 7;
/// SamrQueryInformationDomain, 3.1.5.5.2.
pub const QUERY_INFORMATION_DOMAIN: u16 = 8;
/// SamrEnumerateGroupsInDomain, 3.1.5.2.3.
pub const ENUMERATE_GROUPS: u16 = 11;
/// SamrEnumerateUsersInDomain, 3.1.5.2.5.
pub const ENUMERATE_USERS: u16 = 13;
/// SamrEnumerateAliasesInDomain, 3.1.5.2.4.
pub const ENUMERATE_ALIASES: u16 = 15;
/// SamrGetAliasMembership, 3.1.5.9.2.
pub const GET_ALIAS_MEMBERSHIP: u16 = 16;
/// SamrLookupNamesInDomain, 3.1.5.11.2.
pub const LOOKUP_NAMES: u16 = 17;
/// SamrLookupIdsInDomain, 3.1.5.11.3.
pub const LOOKUP_IDS: u16 = 18;
/// SamrOpenGroup, 3.1.5.1.7.
pub const OPEN_GROUP: u16 = 19;
/// SamrQueryInformationGroup, 3.1.5.5.3.
pub const QUERY_INFORMATION_GROUP: u16 = 20;
/// SamrGetMembersInGroup, 3.1.5.8.3.
pub const GET_MEMBERS_IN_GROUP: u16 = 25;
/// SamrOpenAlias, 3.1.5.1.8.
pub const OPEN_ALIAS: u16 = 27;
/// SamrQueryInformationAlias, 3.1.5.5.4.
pub const QUERY_INFORMATION_ALIAS: u16 = 28;
/// SamrGetMembersInAlias, 3.1.5.8.6.
pub const GET_MEMBERS_IN_ALIAS: u16 = 33;
/// SamrOpenUser, 3.1.5.1.9.
pub const OPEN_USER: u16 = 34;
/// SamrQueryInformationUser, 3.1.5.5.6.
pub const QUERY_INFORMATION_USER: u16 = 36;
/// SamrGetGroupsForUser, 3.1.5.9.1.
pub const GET_GROUPS_FOR_USER: u16 = 39;
/// SamrQueryDisplayInformation, 3.1.5.3.3.
pub const QUERY_DISPLAY_INFORMATION: u16 = 40;
/// SamrGetDisplayEnumerationIndex, 3.1.5.3.5.
pub const GET_DISPLAY_ENUMERATION_INDEX: u16 = 41;
/// SamrGetUserDomainPasswordInformation, 3.1.5.13.3.
pub const GET_USER_DOMAIN_PASSWORD_INFORMATION: u16 = 44;
/// SamrQueryInformationDomain2, 3.1.5.5.1.
pub const QUERY_INFORMATION_DOMAIN2: u16 = 46;
/// SamrQueryInformationUser2, 3.1.5.5.5.
pub const QUERY_INFORMATION_USER2: u16 = 47;
/// SamrQueryDisplayInformation2, 3.1.5.3.2.
pub const QUERY_DISPLAY_INFORMATION2: u16 = 48;
/// SamrGetDisplayEnumerationIndex2, 3.1.5.3.4.
pub const GET_DISPLAY_ENUMERATION_INDEX2: u16 = 49;
/// SamrQueryDisplayInformation3, 3.1.5.3.1.
pub const QUERY_DISPLAY_INFORMATION3: u16 = 51;
/// SamrUnicodeChangePasswordUser2, 3.1.5.10.3.
pub const CHANGE_PASSWORD2: u16 = 55;
/// SamrGetDomainPasswordInformation, 3.1.5.13.4.
pub const GET_DOMAIN_PASSWORD_INFORMATION: u16 = 56;
/// SamrConnect2, 3.1.5.1.3.
pub const CONNECT2: u16 = 57;
/// SamrConnect4, 3.1.5.1.2.
pub const CONNECT4: u16 = 62;
/// SamrConnect5, 3.1.5.1.1.
pub const CONNECT5: u16 = 64;
/// SamrRidToSid, 3.1.5.13.5.
pub const RID_TO_SID: u16 = 65;
/// SamrUnicodeChangePasswordUser4, 3.1.5.10.4.
pub const CHANGE_PASSWORD4: u16 = 73;
