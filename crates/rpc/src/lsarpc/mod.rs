//! The local security authority: names for SIDs and SIDs for names (MS-LSAT),
//! and the little of its policy that goes with them (MS-LSAD).

mod accounts;
mod calls;
mod lookup;
mod policy;
mod privileges;

pub use accounts::{Holder, OfAccount, QuerySecurity};
pub use calls::{Authority, Lsarpc};
pub use lookup::{
    LookupNames, LookupReply, LookupSids, NamesForm, SidsForm, TranslatedName, TranslatedSid,
};
pub use policy::{
    OpenPolicy, OpenPolicy3, PolicyInformation, UserName, UserNameReply, encode_information,
};
pub use privileges::{Enumerate, LookupPrivilege};

use crate::SyntaxId;
use crate::interface::Interface;
use crate::security::AuthLevel;

/// The interface of MS-LSAT 2.1 and MS-LSAD 2.1.
pub static INTERFACE: Interface = Interface {
    syntax: SyntaxId::LSARPC,
    name: "Local security authority",
    pipes: &["lsarpc"],
    secondary_address: r"\PIPE\lsass",
    least_level: AuthLevel::NONE,
    // Deviation: MS-LSAT 2.1 has only two calls on TCP, protected by Netlogon. This server answers
    // the calls of the pipe on TCP as well, for programs without SMB.
    level_on_tcp: Some(AuthLevel::INTEGRITY),
};

/// LsarClose, MS-LSAD 3.1.4.9.4.
pub const CLOSE: u16 = 0;
/// LsarEnumeratePrivileges, MS-LSAD 3.1.4.8.1.
pub const ENUMERATE_PRIVILEGES: u16 = 2;
/// LsarQuerySecurityObject, MS-LSAD 3.1.4.9.1.
pub const QUERY_SECURITY_OBJECT: u16 = 3;
/// LsarOpenPolicy, MS-LSAD 3.1.4.4.2.
pub const OPEN_POLICY: u16 = 6;
/// LsarQueryInformationPolicy, MS-LSAD 3.1.4.4.4.
pub const QUERY_INFORMATION_POLICY: u16 = 7;
/// LsarCreateAccount, MS-LSAD 3.1.4.5.1.
pub const CREATE_ACCOUNT: u16 = 10;
/// LsarEnumerateAccounts, MS-LSAD 3.1.4.5.2.
pub const ENUMERATE_ACCOUNTS: u16 = 11;
/// LsarEnumerateTrustedDomains, MS-LSAD 3.1.4.7.8.
pub const ENUMERATE_TRUSTED_DOMAINS: u16 = 13;
/// LsarLookupNames, MS-LSAT 3.1.4.8.
pub const LOOKUP_NAMES: u16 = 14;
/// LsarLookupSids, MS-LSAT 3.1.4.11.
pub const LOOKUP_SIDS: u16 = 15;
/// LsarOpenAccount, MS-LSAD 3.1.4.5.3.
pub const OPEN_ACCOUNT: u16 = 17;
/// LsarEnumeratePrivilegesAccount, MS-LSAD 3.1.4.5.4.
pub const ENUMERATE_PRIVILEGES_ACCOUNT: u16 = 18;
/// LsarAddPrivilegesToAccount, MS-LSAD 3.1.4.5.5.
pub const ADD_PRIVILEGES_TO_ACCOUNT: u16 = 19;
/// LsarRemovePrivilegesFromAccount, MS-LSAD 3.1.4.5.6.
pub const REMOVE_PRIVILEGES_FROM_ACCOUNT: u16 = 20;
/// LsarLookupPrivilegeValue, MS-LSAD 3.1.4.8.2.
pub const LOOKUP_PRIVILEGE_VALUE: u16 = 31;
/// LsarLookupPrivilegeName, MS-LSAD 3.1.4.8.3.
pub const LOOKUP_PRIVILEGE_NAME: u16 = 32;
/// LsarLookupPrivilegeDisplayName, MS-LSAD 3.1.4.8.4.
pub const LOOKUP_PRIVILEGE_DISPLAY_NAME: u16 = 33;
/// LsarEnumerateAccountsWithUserRight, MS-LSAD 3.1.4.5.9.
pub const ENUMERATE_ACCOUNTS_WITH_USER_RIGHT: u16 = 35;
/// LsarEnumerateAccountRights, MS-LSAD 3.1.4.5.10.
pub const ENUMERATE_ACCOUNT_RIGHTS: u16 = 36;
/// LsarAddAccountRights, MS-LSAD 3.1.4.5.11.
pub const ADD_ACCOUNT_RIGHTS: u16 = 37;
/// LsarRemoveAccountRights, MS-LSAD 3.1.4.5.12.
pub const REMOVE_ACCOUNT_RIGHTS: u16 = 38;
/// LsarOpenPolicy2, MS-LSAD 3.1.4.4.1.
pub const OPEN_POLICY2: u16 = 44;
/// LsarGetUserName, MS-LSAT 3.1.4.4.
pub const GET_USER_NAME: u16 = 45;
/// LsarQueryInformationPolicy2, MS-LSAD 3.1.4.4.3.
pub const QUERY_INFORMATION_POLICY2: u16 = 46;
/// LsarEnumerateTrustedDomainsEx, MS-LSAD 3.1.4.7.7.
pub const ENUMERATE_TRUSTED_DOMAINS_EX: u16 = 50;
/// LsarLookupSids2, MS-LSAT 3.1.4.10.
pub const LOOKUP_SIDS2: u16 = 57;
/// LsarLookupNames2, MS-LSAT 3.1.4.7.
pub const LOOKUP_NAMES2: u16 = 58;
/// LsarLookupNames3, MS-LSAT 3.1.4.6.
pub const LOOKUP_NAMES3: u16 = 68;
/// LsarLookupSids3, MS-LSAT 3.1.4.9.
pub const LOOKUP_SIDS3: u16 = 76;
/// LsarLookupNames4, MS-LSAT 3.1.4.5.
pub const LOOKUP_NAMES4: u16 = 77;

/// LsarOpenPolicy3, MS-LSAD 3.1.4.4.9.
pub const OPEN_POLICY3: u16 = 130;
