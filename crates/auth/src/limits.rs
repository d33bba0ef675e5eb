//! Limits on the memory and work that a peer can cause in this crate.

/// Longest security token in bytes: MS-SMB2 2.2.5 counts it in 16 bits.
pub const MAX_TOKEN_LEN: usize = 65_535;

/// Longest NEGOTIATE_MESSAGE in bytes. It is stored until the AUTHENTICATE_MESSAGE comes, because
/// the MIC covers it, so it is memory held for a stranger.
pub const MAX_NEGOTIATE_LEN: usize = 1_024;

/// Longest CHALLENGE_MESSAGE in bytes that the client accepts.
pub const MAX_CHALLENGE_LEN: usize = 8_192;

/// Longest AUTHENTICATE_MESSAGE in bytes.
pub const MAX_AUTHENTICATE_LEN: usize = 16_384;

/// Most mechanisms in a SPNEGO MechTypeList.
pub const MAX_MECH_COUNT: usize = 16;

/// Longest encoded MechTypeList in bytes; the acceptor stores it for mechListMIC.
pub const MAX_MECH_LIST_LEN: usize = 512;

/// Longest user, domain or workstation name in UTF-16 units. Windows stops at
/// 256 for users and 255 for DNS domain names.
pub const MAX_NAME_UNITS: usize = 256;

/// Longest service principal name in UTF-16 units.
pub const MAX_TARGET_NAME_UNITS: usize = 1_024;

/// Most AV_PAIRs in a list.
pub const MAX_AV_PAIR_COUNT: usize = 32;

/// Longest line of an account file in bytes.
pub const MAX_ACCOUNT_LINE_LEN: usize = 4_096;

/// Longest name of an account or a group in an account file in bytes.
pub const MAX_ACCOUNT_NAME_LEN: usize = 512;

/// Most computers from which an account may log on, where it may not from all.
pub const MAX_WORKSTATION_COUNT: usize = 32;

/// Longest name of such a computer in bytes.
pub(crate) const MAX_WORKSTATION_NAME_LEN: usize = 64;

/// Most former passwords of an account whose hashes are kept, as in Windows.
pub const MAX_FORMER_PASSWORD_COUNT: usize = 24;

/// Most lines of an account file.
pub const MAX_ACCOUNT_LINE_COUNT: usize = 65_536;

/// Longest new password that a client may set, in UTF-16 units: what MS-SAMR 2.2.6.21 has room for.
pub const MAX_NEW_PASSWORD_UNITS: usize = 256;

/// Longest name of a Kerberos principal, and of each of its parts, in bytes.
pub const MAX_PRINCIPAL_LEN: usize = 1_024;

/// Most components of a Kerberos principal's name.
pub const MAX_PRINCIPAL_COMPONENTS: usize = 8;

/// Longest Kerberos ticket in bytes. Windows' MaxTokenSize ends at 65,535; a token has one ticket.
pub const MAX_TICKET_LEN: usize = 65_535;

/// Longest reply of a KDC in bytes: a ticket, and half as much around it.
pub const MAX_KDC_MESSAGE_LEN: usize = 98_304;

/// Most elements of a KDC's pre-authentication data, and of each list in it.
pub const MAX_PA_DATA: usize = 32;

/// Most referrals of KDCs to further realms that a client follows for one ticket.
pub const MAX_KDC_REFERRALS: usize = 8;

/// Longest keytab in bytes.
pub const MAX_KEYTAB_LEN: usize = 1_048_576;

/// Most keys of a keytab.
pub const MAX_SERVICE_KEY_COUNT: usize = 1_024;

/// Longest credentials cache in bytes.
pub const MAX_CCACHE_LEN: usize = 4_194_304;

/// Most entries of a credentials cache.
pub const MAX_CCACHE_TICKETS: usize = 512;

/// Most keys with which one ticket is tried: those of its encryption type, the named version first.
pub const MAX_SERVICE_KEYS_TRIED: usize = 32;

/// Longest answer of a KDC to a question about keys, in bytes.
pub const MAX_KEY_ANSWER_LEN: usize = 65_535;

/// Most items of each list in an answer of a KDC to a question about keys.
pub const MAX_KEY_ANSWER_ITEMS: usize = 32;

/// Most elements of a Kerberos AuthorizationData.
pub const MAX_AUTHORIZATION_DATA: usize = 32;

/// Most buffers of a PAC.
pub const MAX_PAC_BUFFER_COUNT: usize = 32;

/// Most SIDs of a PAC in each of its lists, and most groups of a user: twice as many as a token of
/// Windows has room for, and as many as by NTLM.
pub const MAX_PAC_SIDS: usize = 2_048;

/// Seconds by which the clocks of Kerberos client, KDC and server may differ; default of the
/// setting. Authenticators are remembered for twice the time.
pub const CLOCK_SKEW: u32 = 300;

/// Most AP-REQs that are remembered, of all clients: logons of five minutes at 1,700 a second. They
/// take up to 40 MiB.
pub const MAX_REPLAYS: usize = 524_288;

/// Most AP-REQs of one client that are remembered, so that one user cannot fill the memory.
pub const MAX_REPLAYS_PER_CLIENT: usize = 131_072;
