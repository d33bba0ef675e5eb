//! The server itself: SERVER_INFO_n and TIME_OF_DAY_INFO, MS-SRVS 2.2.4.40 to 2.2.4.45 and
//! 2.2.4.105.

use super::super::WinError;
use super::{ServerLimits, encode_server_and_level, read_status};
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::bit_set;
use frevo_wire::codec::{Malformed, Parsed};
use frevo_wire::dtyp::FileTime;
use frevo_wire::ndr::{NdrReader, NdrWriter};

bit_set! {
    /// sv*_type, MS-SRVS 2.2.2.7.
    ServerType(u32) {
        /// SV_TYPE_WORKSTATION
        WORKSTATION = 0x0000_0001,
        /// SV_TYPE_SERVER
        SERVER = 0x0000_0002,
        /// SV_TYPE_DOMAIN_MEMBER
        DOMAIN_MEMBER = 0x0000_0100,
        /// SV_TYPE_NT
        NT = 0x0000_1000,
        /// SV_TYPE_SERVER_NT
        SERVER_NT = 0x0000_8000,
        /// SV_TYPE_DFS
        DFS = 0x0080_0000,
        /// SV_TYPE_CLUSTER_NT
        CLUSTER_NT = 0x0100_0000,
    }
}

/// PLATFORM_ID_NT, MS-SRVS 2.2.2.6.
pub(crate) const PLATFORM_ID_NT: u32 = 500;

/// Facts about the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    /// NetBIOS or host name, without backslashes.
    pub name: String,
    /// Name of the domain or workgroup.
    pub domain: String,
    /// Comment on the server, for people.
    pub comment: String,
    /// Major version of the system that the server says it is.
    pub version_major: u32,
    /// Minor version of Windows that the server claims.
    pub version_minor: u32,
    /// Type bits of the server (SV101 type).
    pub kind: ServerType,
    /// Users that may be connected at once.
    pub max_users: u32,
    /// Minutes after which an idle session ends; all ones for never.
    pub idle_disconnect_minutes: u32,
    /// Users logged on; told to administrators.
    pub logged_on_users: u32,
    /// The limits that levels 502 and 503 tell.
    pub limits: ServerLimits,
}

/// Arguments of NetrServerGetInfo, MS-SRVS 3.1.4.17.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerGetInfo {
    /// Level
    pub level: u32,
}

impl ServerGetInfo {
    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        r.unique_string("ServerName")?;
        Ok(Self { level: r.u32("NetrServerGetInfo level")? })
    }

    /// Stub data of a request to `server`, which is `\\name`.
    pub fn encode(&self, server: &str) -> Vec<u8> {
        encode_server_and_level(server, self.level)
    }

    /// Returns the stub data of the reply: levels 100, 101, 102, 502 and 503, or
    /// ERROR_INVALID_LEVEL. Levels 502 and 503 are for callers that may manage the server (MS-SRVS
    /// notes 80 and 81).
    ///
    /// Deviation: the name is always the server's own. MS-SRVS 3.1.4.17 repeats the name that the
    /// caller used, which tells the caller nothing.
    pub fn encode_reply(&self, info: &ServerInfo, may_manage: bool) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.u32(self.level);
        match self.level {
            100..=102 => self.encode_identity(&mut w, info),
            502 | 503 if may_manage => self.encode_limits(&mut w, info),
            level => {
                if has_arm(level) {
                    w.pointer(false);
                }
                let is_known = matches!(level, 502 | 503);
                let refusal =
                    if is_known { WinError::ACCESS_DENIED } else { WinError::INVALID_LEVEL };
                w.u32(refusal.0);
            }
        }
        w.into_stub()
    }

    /// Writes SERVER_INFO_502 or SERVER_INFO_503, and the status.
    fn encode_limits(&self, w: &mut NdrWriter, info: &ServerInfo) {
        w.pointer(true);
        info.limits.encode_common(w);
        if self.level == 503 {
            info.limits.encode_rest(w);
            w.string(&info.domain);
        }
        w.u32(WinError::SUCCESS.0);
    }

    /// Writes SERVER_INFO_100, SERVER_INFO_101 or SERVER_INFO_102, and the status.
    fn encode_identity(&self, w: &mut NdrWriter, info: &ServerInfo) {
        w.pointer(true).u32(PLATFORM_ID_NT).pointer(true);
        if self.level >= 101 {
            w.u32(info.version_major).u32(info.version_minor).u32(info.kind.0).pointer(true);
        }
        if self.level == 102 {
            // The fields are users, disc (idle minutes), hidden, announce, anndelta, licenses and
            // userpath.
            w.u32(info.max_users).u32(info.idle_disconnect_minutes);
            w.u32(0).u32(240).u32(3000).u32(0).pointer(true);
        }
        w.string(&info.name);
        if self.level >= 101 {
            w.string(&info.comment);
        }
        if self.level == 102 {
            w.string("");
        }
        w.u32(WinError::SUCCESS.0);
    }

    /// Parses the reply. Fields that the level does not have are empty or zero.
    pub fn parse_reply(&self, stub: &[u8]) -> Parsed<Result<ServerInfo, WinError>> {
        let what = "NetrServerGetInfo reply";
        let mut r = NdrReader::new(stub);
        if r.u32(what)? != self.level {
            return Err(Malformed::new(what));
        }
        if !has_arm(self.level) || !r.pointer(what)? {
            return read_status(&mut r).map(Err);
        }
        if !matches!(self.level, 100..=102) {
            return Err(Malformed::new(what));
        }
        let info = read_server_info(&mut r, self.level)?;
        let status = read_status(&mut r)?;
        Ok(if status == WinError::SUCCESS { Ok(info) } else { Err(status) })
    }
}

/// True for a level that the union SERVER_INFO has an arm for (MS-SRVS 2.2.3.7): a pointer, also in
/// a reply without data.
const fn has_arm(level: u32) -> bool {
    matches!(
        level,
        100..=103 | 502 | 503 | 599 | 1005 | 1010 | 1016..=1018 | 1107 | 1501..=1503 | 1506
            | 1510..=1516 | 1518 | 1523 | 1528..=1530 | 1533..=1536 | 1538..=1550 | 1552..=1556
    )
}

fn read_server_info(r: &mut NdrReader<'_>, level: u32) -> Parsed<ServerInfo> {
    let what = "SERVER_INFO";
    r.u32(what)?;
    let has_name = r.pointer(what)?;
    let mut info = ServerInfo {
        name: String::new(),
        domain: String::new(),
        comment: String::new(),
        version_major: 0,
        version_minor: 0,
        kind: ServerType::EMPTY,
        max_users: 0,
        idle_disconnect_minutes: 0,
        logged_on_users: 0,
        limits: ServerLimits::default(),
    };
    let (mut has_comment, mut has_path) = (false, false);
    if level >= 101 {
        info.version_major = r.u32(what)?;
        info.version_minor = r.u32(what)?;
        info.kind = ServerType(r.u32(what)?);
        has_comment = r.pointer(what)?;
    }
    if level == 102 {
        info.max_users = r.u32(what)?;
        info.idle_disconnect_minutes = r.u32(what)?;
        for _ in 0..4 {
            r.u32(what)?;
        }
        has_path = r.pointer(what)?;
    }
    if has_name {
        info.name = r.string(what)?.to_string_lossy();
    }
    if has_comment {
        info.comment = r.string(what)?.to_string_lossy();
    }
    if has_path {
        r.string(what)?;
    }
    Ok(info)
}

/// TIME_OF_DAY_INFO, MS-SRVS 2.2.4.105, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeOfDay {
    /// Seconds since 1970.
    pub elapsed_seconds: u32,
    /// Milliseconds since the server started; wraps.
    pub uptime_ms: u32,
    /// Hour, 0 to 23.
    pub hours: u32,
    /// Minute, 0 to 59.
    pub minutes: u32,
    /// Second, 0 to 59.
    pub seconds: u32,
    /// Hundredth of a second, 0 to 99.
    pub hundredths: u32,
    /// Day of the month, from 1.
    pub day: u32,
    /// Month, from 1.
    pub month: u32,
    /// The year, with its century.
    pub year: u32,
    /// Day of the week, 0 is Sunday.
    pub weekday: u32,
}

const SECONDS_PER_DAY: i64 = 86_400;

impl TimeOfDay {
    /// From the time and how long the server has run.
    pub fn new(now: FileTime, uptime_ms: u64) -> Self {
        let (unix, nanoseconds) = now.to_unix();
        let days = unix.div_euclid(SECONDS_PER_DAY);
        let second = part(unix.rem_euclid(SECONDS_PER_DAY));
        let (year, month, day) = civil(days);
        Self {
            elapsed_seconds: part(unix & 0xFFFF_FFFF),
            uptime_ms: u32::try_from(uptime_ms & 0xFFFF_FFFF).unwrap_or(0),
            hours: second / 3600,
            minutes: second / 60 % 60,
            seconds: second % 60,
            hundredths: nanoseconds / 10_000_000,
            day,
            month,
            year,
            // Day 0 (1970-01-01) was a Thursday, which has the number 4.
            weekday: part(days.saturating_add(4).rem_euclid(7)),
        }
    }

    /// Stub data of the reply to NetrRemoteTOD.
    pub fn encode_reply(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.pointer(true).u32(self.elapsed_seconds).u32(self.uptime_ms);
        w.u32(self.hours).u32(self.minutes).u32(self.seconds).u32(self.hundredths);
        // tod_timezone is 0 (UTC), and tod_tinterval is 310 (31 ms), as in Windows.
        w.u32(0).u32(310);
        w.u32(self.day).u32(self.month).u32(self.year).u32(self.weekday).u32(WinError::SUCCESS.0);
        w.into_stub()
    }
}

fn part(value: i64) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

/// Year, month and day of a day counted from 1970-01-01, by eras of 400 years
/// that begin on the first of March, so that leap days come last.
fn civil(days: i64) -> (u32, u32, u32) {
    let days = days.saturating_add(719_468);
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let leaps = (day_of_era / 1460)
        .saturating_sub(day_of_era / 36_524)
        .saturating_add(day_of_era / 146_096);
    let year_of_era = day_of_era.saturating_sub(leaps) / 365;
    let before = (year_of_era.saturating_mul(365))
        .saturating_add(year_of_era / 4)
        .saturating_sub(year_of_era / 100);
    let day_of_year = day_of_era.saturating_sub(before);
    let month_from_march = day_of_year.saturating_mul(5).saturating_add(2) / 153;
    let month_start = month_from_march.saturating_mul(153).saturating_add(2) / 5;
    let day = day_of_year.saturating_sub(month_start).saturating_add(1);
    let (month, carry) = if month_from_march < 10 {
        (month_from_march.saturating_add(3), 0)
    } else {
        (month_from_march.saturating_sub(9), 1)
    };
    let year = era.saturating_mul(400).saturating_add(year_of_era).saturating_add(carry);
    (part(year), part(month), part(day))
}
