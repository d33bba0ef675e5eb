//! Information about one domain, user, group or alias: MS-SAMR 2.2.3 to 2.2.6.

use alloc::vec::Vec;
use frevo_wire::ndr::NdrWriter;
use frevo_wire::{Status, open_enum};

open_enum! {
    /// DOMAIN_INFORMATION_CLASS, MS-SAMR 2.2.3.16: the supported classes.
    DomainInformation(u32) {
        /// DomainPasswordInformation
        PASSWORD = 1,
        /// DomainGeneralInformation
        GENERAL = 2,
        /// DomainLogoffInformation
        LOGOFF = 3,
        /// DomainNameInformation
        NAME = 5,
        /// DomainServerRoleInformation
        SERVER_ROLE = 7,
        /// DomainModifiedInformation
        MODIFIED = 8,
        /// DomainStateInformation
        STATE = 9,
        /// DomainLockoutInformation
        LOCKOUT = 12,
    }
}

open_enum! {
    /// GROUP_INFORMATION_CLASS, MS-SAMR 2.2.4.6.
    GroupInformation(u32) {
        /// GroupGeneralInformation
        GENERAL = 1,
        /// GroupNameInformation
        NAME = 2,
        /// GroupAttributeInformation
        ATTRIBUTE = 3,
        /// GroupAdminCommentInformation
        ADMIN_COMMENT = 4,
    }
}

open_enum! {
    /// ALIAS_INFORMATION_CLASS, MS-SAMR 2.2.5.5.
    AliasInformation(u32) {
        /// AliasGeneralInformation
        GENERAL = 1,
        /// AliasNameInformation
        NAME = 2,
        /// AliasAdminCommentInformation
        ADMIN_COMMENT = 3,
    }
}

open_enum! {
    /// USER_INFORMATION_CLASS, MS-SAMR 2.2.6.28: the supported classes.
    UserInformation(u32) {
        /// UserGeneralInformation
        GENERAL = 1,
        /// UserNameInformation
        NAME = 6,
        /// UserAccountNameInformation
        ACCOUNT_NAME = 7,
        /// UserFullNameInformation
        FULL_NAME = 8,
        /// UserPrimaryGroupInformation
        PRIMARY_GROUP = 9,
        /// UserAdminCommentInformation
        ADMIN_COMMENT = 13,
        /// UserControlInformation
        CONTROL = 16,
        /// UserAllInformation
        ALL = 21,
    }
}

/// Facts about a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DomainFacts<'a> {
    /// The domain's name.
    pub name: &'a str,
    /// How many users, groups and aliases it has.
    pub counts: [u32; 3],
}

/// USER_DOMAIN_PASSWORD_INFORMATION, MS-SAMR 2.2.7.17: as [`encode_domain`] tells the policy, a password
/// may have any length, and no rule binds it.
pub fn encode_password_information(status: Status) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.u16(0).u32(0).u32(status.0);
    w.into_stub()
}

/// Facts about a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserFacts<'a> {
    /// UserName
    pub name: &'a str,
    /// UserId
    pub rid: u32,
    /// PrimaryGroupId
    pub primary_group: u32,
    /// UserAccountControl, MS-SAMR 2.2.1.12.
    pub control: u32,
}

/// The fields of UserAllInformation that are told (MS-SAMR 2.2.1.8): names,
/// comments, paths, identifiers and control, and that nothing ever expires.
const WHICH_FIELDS: u32 = 0x0000_07FF | 0x0008_0000 | 0x0010_0000;

/// A time that does not come, as OLD_LARGE_INTEGER.
const NEVER: [u32; 2] = [0xFFFF_FFFF, 0x7FFF_FFFF];

/// SE_GROUP_MANDATORY, SE_GROUP_ENABLED_BY_DEFAULT and SE_GROUP_ENABLED.
const ATTRIBUTES: u32 = 7;

/// The pointer to a union, its arm and the status; none of a class that is not
/// told, which is INVALID_INFO_CLASS.
fn answer(class: u32, arm: impl FnOnce(&mut NdrWriter) -> Option<()>) -> Option<Vec<u8>> {
    let mut w = NdrWriter::new();
    w.pointer(true).u16(u16::try_from(class).ok()?);
    arm(&mut w)?;
    w.u32(Status::SUCCESS.0);
    Some(w.into_stub())
}

fn time(w: &mut NdrWriter, [low, high]: [u32; 2]) {
    w.u32(low).u32(high);
}

/// Appends one name.
fn name(w: &mut NdrWriter, text: &str) {
    w.unicode_head(text, 0).unicode(text, 0);
}

/// The reply of SamrQueryInformationDomain and its successor.
pub fn encode_domain(class: DomainInformation, of: &DomainFacts<'_>) -> Option<Vec<u8>> {
    const ENABLED: u32 = 1;
    // The role is DomainServerRolePrimary (3).
    const PRIMARY: u32 = 3;
    answer(class.0, |w| {
        match class {
            DomainInformation::PASSWORD => {
                // The password policy has no minimum length, no history, no flags and no maximum
                // age.
                w.u16(0).u16(0).u32(0);
                time(w, [0, 0x8000_0000]);
                time(w, [0, 0]);
            }
            DomainInformation::GENERAL => {
                time(w, [0, 0x8000_0000]);
                w.unicode_head("", 0).unicode_head(of.name, 0).unicode_head("", 0);
                time(w, [0, 0]);
                w.u32(ENABLED).u32(PRIMARY).u8(1);
                for count in of.counts {
                    w.u32(count);
                }
                w.unicode("", 0).unicode(of.name, 0).unicode("", 0);
            }
            DomainInformation::LOGOFF => time(w, [0, 0x8000_0000]),
            DomainInformation::NAME => name(w, of.name),
            DomainInformation::SERVER_ROLE => {
                w.u32(PRIMARY);
            }
            DomainInformation::MODIFIED => {
                time(w, [0, 0]);
                time(w, [0, 0]);
            }
            DomainInformation::STATE => {
                w.u32(ENABLED);
            }
            DomainInformation::LOCKOUT => {
                // The structure has LARGE_INTEGERs, first LockoutDuration and
                // LockoutObservationWindow, so it is aligned to eight bytes.
                w.align(8);
                time(w, [0, 0]);
                time(w, [0, 0]);
                w.u16(0);
            }
            _ => return None,
        }
        Some(())
    })
}

/// The reply of SamrQueryInformationGroup.
pub fn encode_group(class: GroupInformation, group: &str, members: u32) -> Option<Vec<u8>> {
    answer(class.0, |w| {
        match class {
            GroupInformation::GENERAL => {
                w.unicode_head(group, 0).u32(ATTRIBUTES).u32(members).unicode_head("", 0);
                w.unicode(group, 0).unicode("", 0);
            }
            GroupInformation::NAME => name(w, group),
            GroupInformation::ATTRIBUTE => {
                w.u32(ATTRIBUTES);
            }
            GroupInformation::ADMIN_COMMENT => name(w, ""),
            _ => return None,
        }
        Some(())
    })
}

/// The reply of SamrQueryInformationAlias.
pub fn encode_alias(class: AliasInformation, alias: &str, members: u32) -> Option<Vec<u8>> {
    answer(class.0, |w| {
        match class {
            AliasInformation::GENERAL => {
                w.unicode_head(alias, 0).u32(members).unicode_head("", 0);
                w.unicode(alias, 0).unicode("", 0);
            }
            AliasInformation::NAME => name(w, alias),
            AliasInformation::ADMIN_COMMENT => name(w, ""),
            _ => return None,
        }
        Some(())
    })
}

/// The reply of SamrQueryInformationUser and its successor.
pub fn encode_user(class: UserInformation, of: &UserFacts<'_>) -> Option<Vec<u8>> {
    answer(class.0, |w| {
        match class {
            UserInformation::GENERAL => {
                w.unicode_head(of.name, 0).unicode_head("", 0).u32(of.primary_group);
                w.unicode_head("", 0).unicode_head("", 0);
                w.unicode(of.name, 0).unicode("", 0).unicode("", 0).unicode("", 0);
            }
            UserInformation::NAME => {
                w.unicode_head(of.name, 0).unicode_head("", 0);
                w.unicode(of.name, 0).unicode("", 0);
            }
            UserInformation::ACCOUNT_NAME => name(w, of.name),
            UserInformation::FULL_NAME | UserInformation::ADMIN_COMMENT => name(w, ""),
            UserInformation::PRIMARY_GROUP => {
                w.u32(of.primary_group);
            }
            UserInformation::CONTROL => {
                w.u32(of.control);
            }
            UserInformation::ALL => all(w, of),
            _ => return None,
        }
        Some(())
    })
}

/// SAMPR_USER_ALL_INFORMATION, MS-SAMR 2.2.6.6.
fn all(w: &mut NdrWriter, of: &UserFacts<'_>) {
    // Writes LastLogon, LastLogoff, PasswordLastSet, AccountExpires, PasswordCanChange and
    // PasswordMustChange: zero for an unknown time, NEVER for an event that does not happen.
    for at in [[0, 0], NEVER, [0, 0], NEVER, [0, 0], NEVER] {
        time(w, at);
    }
    // Writes the lengths of UserName and of nine empty strings (FullName to Parameters).
    w.unicode_head(of.name, 0);
    for _ in 0..9 {
        w.unicode_head("", 0);
    }
    // The LM password, the NT password and the private data are never returned.
    for _ in 0..3 {
        w.u16(0).u16(0).pointer(false);
    }
    w.u32(0).pointer(false);
    w.u32(of.rid).u32(of.primary_group).u32(of.control).u32(WHICH_FIELDS);
    w.u16(0).pointer(false);
    // Writes zeros for BadPasswordCount, LogonCount, CountryCode and CodePage.
    w.u16(0).u16(0).u16(0).u16(0);
    // Writes zeros for LmPasswordPresent, NtPasswordPresent, PasswordExpired and
    // PrivateDataSensitive.
    w.u8(0).u8(0).u8(0).u8(0);
    w.unicode(of.name, 0);
    for _ in 0..9 {
        w.unicode("", 0);
    }
}
