//! Reasons for which a Kerberos logon is refused.

use super::message::{ErrorCode, Ticket};
use super::{EncryptionType, Principal};
use alloc::boxed::Box;
use core::fmt;

/// The part of a ticket that is not encrypted, RFC 4120 5.3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedTicket {
    /// The service that the client asked for.
    pub server: Principal,
    /// The assigned number of the encryption type.
    pub etype: i32,
    /// The version of the key. Keys need not have versions.
    pub kvno: Option<u32>,
}

impl SealedTicket {
    pub(super) fn of(ticket: &Ticket<'_>) -> Self {
        let (etype, kvno) = (ticket.sealed.etype, ticket.sealed.kvno);
        Self { server: ticket.server.clone(), etype, kvno }
    }

    /// Returns the name of the encryption type, or its number.
    pub const fn etype(&self) -> impl fmt::Display + use<> {
        NameOfType(self.etype)
    }
}

/// Shows an encryption type by its name, or by its number if it has none here.
struct NameOfType(i32);

impl fmt::Display for NameOfType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match EncryptionType::from_number(self.0) {
            Some(etype) => etype.fmt(f),
            None => self.0.fmt(f),
        }
    }
}

/// The reason of a refused Kerberos logon. Its text is one line that tells what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A message is malformed.
    Malformed(&'static str),
    /// The ticket or its session key has an encryption type that the configuration does not allow.
    EncryptionType {
        /// The ticket.
        ticket: Box<SealedTicket>,
        /// The assigned number of the encryption type.
        number: i32,
    },
    /// There is no key of the ticket's encryption type.
    NoKey(Box<SealedTicket>),
    /// There is no key of the ticket's version.
    NoKeyVersion {
        /// The ticket.
        ticket: Box<SealedTicket>,
        /// The version that the ticket needs.
        kvno: u32,
        /// The newest version that is known.
        newest: u32,
    },
    /// A key of this version is known, but the ticket is encrypted with another key.
    WrongKey(Box<SealedTicket>),
    /// The authenticator cannot be decrypted with the ticket's session key.
    WrongAuthenticator,
    /// The authenticator is of another client than the ticket.
    OtherClient,
    /// The clocks of client and server differ by this number of seconds; a positive one means that
    /// the client's is ahead.
    Skew(i64),
    /// The ticket ended this number of seconds ago.
    Expired(i64),
    /// The ticket begins in this number of seconds, or is marked invalid (0).
    NotYetValid(i64),
    /// This AP-REQ was here before.
    Replayed,
    /// The memory of accepted AP-REQs is full.
    ReplaysFull,
    /// This client has sent as many AP-REQs as one client may in the time that they are remembered.
    TooManyLogons,
    /// The ticket is for the client's use with another user (user-to-user), which is not supported.
    UserToUser,
    /// The client wants a context of three messages, as RPC has it.
    DceStyle,
    /// The authenticator has a checksum of another type than the GSS-API's.
    ChecksumType(i32),
    /// The channel bindings are not those of this connection.
    ChannelBindings,
    /// The ticket passed through realms that its KDC has not checked.
    Transited,
    /// The ticket or its authenticator has authorization data of this type, which a service must
    /// understand and this one does not.
    MandatoryData(i32),
    /// The ticket has no PAC.
    MissingPac,
    /// The PAC lacks this part.
    MissingPacPart(&'static str),
    /// The PAC is signed in a way that does not belong to the key of this server.
    PacSignatureType(i32),
    /// The server's signature of the PAC is wrong.
    PacAltered,
    /// The PAC is of another client than the ticket.
    PacOfAnother,
    /// The user is in more groups than a token has room for.
    TooManyGroups,
    /// The account is disabled.
    Disabled,
    /// The server answered the logon of this client with this error code.
    Peer(i32),
    /// The server did not prove to this client that it can read the ticket.
    WrongProof,
}

impl Fault {
    /// Returns the ticket that the server cannot use. None for other faults.
    pub const fn ticket(&self) -> Option<&SealedTicket> {
        match self {
            Self::EncryptionType { ticket, .. }
            | Self::NoKey(ticket)
            | Self::NoKeyVersion { ticket, .. }
            | Self::WrongKey(ticket) => Some(ticket),
            _ => None,
        }
    }

    /// Returns the code of the KRB-ERROR for a fault that the client can mend, by setting its clock
    /// or getting a new ticket. None for other faults.
    pub(super) const fn code(&self) -> Option<ErrorCode> {
        Some(match self {
            Self::Skew(_) => ErrorCode::SKEW,
            Self::Expired(_) => ErrorCode::TICKET_EXPIRED,
            Self::NotYetValid(_) => ErrorCode::TICKET_NOT_YET_VALID,
            // MS-KILE 3.4.5: each failure to decrypt the ticket is reported as MODIFIED, so that
            // Windows gets a new ticket.
            Self::NoKey(_) | Self::NoKeyVersion { .. } | Self::WrongKey(_) => ErrorCode::MODIFIED,
            _ => return None,
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(what) => write!(f, "the Kerberos message is malformed: {what}"),
            Self::EncryptionType { ticket, number } => write!(
                f,
                "the ticket for {} uses the encryption type {}, which is not allowed here; let the \
                 account of this server have AES keys (msDS-SupportedEncryptionTypes), or allow the \
                 type in the configuration",
                ticket.server,
                NameOfType(*number)
            ),
            Self::NoKey(ticket) => write!(
                f,
                "the ticket for {} needs a key of {}, which the keytab does not have; export the \
                 keytab again",
                ticket.server,
                ticket.etype()
            ),
            Self::NoKeyVersion { ticket, kvno, newest } if kvno < newest => write!(
                f,
                "the ticket for {} is older than the password of this server: it needs key \
                 version {kvno}, and the keytab has {newest}; the client has to get a new ticket \
                 (klist purge, kdestroy), or another account has this name (setspn -Q)",
                ticket.server
            ),
            Self::NoKeyVersion { ticket, kvno, newest } => write!(
                f,
                "the keytab is older than the password of this server: the ticket for {} needs key \
                 version {kvno}, and the keytab has {newest}; export the keytab again",
                ticket.server
            ),
            Self::WrongKey(ticket) => {
                let server = &ticket.server;
                write!(f, "the ticket for {server} is encrypted with a key of another account")?;
                if let Some(kvno) = ticket.kvno {
                    write!(f, " (version {kvno})")?;
                }
                f.write_str(
                    "; check which account has this service principal name (setspn -Q), or \
                     export the keytab again",
                )
            }
            Self::WrongAuthenticator => f.write_str("the authenticator of the ticket was altered"),
            Self::OtherClient => f.write_str("the authenticator is of another client"),
            Self::Skew(seconds) => {
                let side = if *seconds > 0 { "ahead of" } else { "behind" };
                let seconds = seconds.unsigned_abs();
                write!(
                    f,
                    "the client's clock is {seconds} seconds {side} this server's; set both by NTP"
                )
            }
            Self::Expired(seconds) => write!(
                f,
                "the ticket expired {seconds} seconds ago; the client has to get a new one"
            ),
            Self::NotYetValid(0) => f.write_str(
                "the ticket is postdated, and its client has not let the KDC validate it",
            ),
            Self::NotYetValid(seconds) => write!(
                f,
                "the ticket becomes valid in {seconds} seconds; check the clocks of the KDC and \
                 of this server"
            ),
            Self::Replayed => f.write_str("the AP-REQ was used before: the logon is a replay"),
            _ => self.fmt_rest(f),
        }
    }
}

impl Fault {
    fn fmt_rest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReplaysFull => f.write_str(
                "the memory of recent Kerberos logons is full; try again in some minutes",
            ),
            Self::TooManyLogons => f.write_str(
                "the client has logged on by Kerberos more often than one user may in ten minutes",
            ),
            Self::UserToUser => f.write_str("the client wants user-to-user authentication"),
            Self::DceStyle => f.write_str("the client wants the three messages of DCE RPC"),
            Self::ChecksumType(number) => {
                write!(f, "the authenticator has a checksum of the unsupported type {number}")
            }
            Self::ChannelBindings => {
                f.write_str("the channel bindings are not those of this connection")
            }
            Self::Transited => f.write_str(
                "the ticket comes through realms that the KDC has not checked; let the KDC check \
                 them",
            ),
            Self::MandatoryData(number) => write!(
                f,
                "the ticket restricts its use by authorization data of type {number}, which this \
                 server does not know; let the KDC issue tickets for it without"
            ),
            Self::MissingPac => f.write_str(
                "the ticket has no PAC, which the configuration demands: the KDC is no domain \
                 controller, or the account of this server is set to need no authorization data",
            ),
            Self::MissingPacPart(what) => write!(f, "the PAC of the ticket has no {what}"),
            Self::PacSignatureType(number) => write!(
                f,
                "the PAC of the ticket has a signature of type {number}, which does not belong to \
                 the server's key"
            ),
            Self::PacAltered => f.write_str("the PAC of the ticket was altered"),
            Self::PacOfAnother => f.write_str("the PAC of the ticket is of another client"),
            Self::TooManyGroups => f.write_str("the user is in too many groups"),
            Self::Disabled => f.write_str("the account is disabled"),
            Self::Peer(number) => {
                match ErrorCode(*number).name() {
                    Some(name) => write!(f, "the server refused the ticket: {name}")?,
                    None => write!(f, "the server refused the ticket: KRB-ERROR {number}")?,
                }
                f.write_str(match ErrorCode(*number) {
                    ErrorCode::MODIFIED
                    | ErrorCode::NOT_US
                    | ErrorCode::NO_KEY
                    | ErrorCode::BAD_KEY_VERSION => {
                        "; another account has this name, or the server's keytab is old (its log \
                         says which)"
                    }
                    ErrorCode::SKEW | ErrorCode::TICKET_NOT_YET_VALID => {
                        "; set the clocks of both by NTP"
                    }
                    ErrorCode::TICKET_EXPIRED => "; run kinit",
                    _ => "",
                })
            }
            Self::WrongProof => {
                f.write_str("the server's proof that it can read the ticket is wrong")
            }
            _ => f.write_str("the Kerberos logon was refused"),
        }
    }
}

impl From<frevo_wire::Malformed> for Fault {
    fn from(fault: frevo_wire::Malformed) -> Self {
        Self::Malformed(fault.what)
    }
}
