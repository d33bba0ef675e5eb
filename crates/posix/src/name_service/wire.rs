//! Questions and answers between two processes of one program, as bytes.

use std::path::Path;

use rustix::io::Errno;

use crate::limits::GROUPS_PER_USER;
use crate::unix::{Said, UnixUser};

/// A question to the name service.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Question {
    User(String),
    UserName(u32),
    GroupName(u32),
    GroupId(String),
    /// Asks for a socket that is connected to a daemon of the log.
    LogSocket(LogDaemon),
}

/// A daemon that takes lines of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogDaemon {
    /// systemd's journal.
    Journal,
    Syslog,
}

impl LogDaemon {
    /// The daemon whose socket has this path.
    pub(super) fn at(path: &Path) -> Option<Self> {
        [Self::Journal, Self::Syslog].into_iter().find(|daemon| daemon.path() == path)
    }

    /// The path of its socket.
    pub(super) fn path(self) -> &'static Path {
        Path::new(match self {
            Self::Journal => "/run/systemd/journal/socket",
            Self::Syslog => "/dev/log",
        })
    }
}

impl Question {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, body) = match self {
            Self::User(name) => (1, name.clone().into_bytes()),
            Self::UserName(uid) => (2, uid.to_le_bytes().into()),
            Self::GroupName(gid) => (3, gid.to_le_bytes().into()),
            Self::GroupId(name) => (4, name.clone().into_bytes()),
            Self::LogSocket(LogDaemon::Journal) => (5, vec![0]),
            Self::LogSocket(LogDaemon::Syslog) => (5, vec![1]),
        };
        [&[kind], &body[..]].concat()
    }

    pub(super) fn decode(packet: &[u8]) -> Option<Self> {
        let (kind, body) = packet.split_first()?;
        let text = || String::from_utf8(body.to_vec()).ok();
        match kind {
            1 => text().map(Self::User),
            2 => number(body).map(Self::UserName),
            3 => number(body).map(Self::GroupName),
            4 => text().map(Self::GroupId),
            5 => match body {
                [0] => Some(Self::LogSocket(LogDaemon::Journal)),
                [1] => Some(Self::LogSocket(LogDaemon::Syslog)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// An answer of the name service.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Nobody,
    User(UnixUser),
    Text(String),
    Id(u32),
    /// The question could not be asked.
    Failed(Errno),
}

impl Answer {
    /// Makes the answer from the C library's result.
    pub(super) fn of<T>(said: Said<T>, found: impl FnOnce(T) -> Self) -> Self {
        match said {
            Ok(Some(value)) => found(value),
            Ok(None) => Self::Nobody,
            Err(errno) => Self::Failed(errno),
        }
    }

    /// Returns the result of an answer without a user or group.
    pub(super) fn nobody<T>(self) -> Said<T> {
        match self {
            Self::Nobody => Ok(None),
            Self::Failed(errno) => Err(errno),
            // This answer belongs to another kind of question, so it is an error.
            _ => Err(Errno::IO),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Nobody => vec![0],
            Self::User(user) => {
                let mut out = vec![1];
                for id in [user.uid, user.gid].iter().chain(&user.groups) {
                    out.extend_from_slice(&id.to_le_bytes());
                }
                out
            }
            Self::Text(text) => [&[2], text.as_bytes()].concat(),
            Self::Id(id) => [&[3], &id.to_le_bytes()[..]].concat(),
            Self::Failed(errno) => [&[4], &errno.raw_os_error().to_le_bytes()[..]].concat(),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, body) = bytes.split_first()?;
        match kind {
            0 => Some(Self::Nobody),
            1 => {
                let ids: Option<Vec<u32>> = body.chunks(4).map(number).collect();
                let ids = ids.filter(|ids| ids.len() <= GROUPS_PER_USER + 2)?;
                let (&[uid, gid], groups) = ids.split_first_chunk()?;
                Some(Self::User(UnixUser { uid, gid, groups: groups.to_vec() }))
            }
            2 => String::from_utf8(body.to_vec()).ok().map(Self::Text),
            3 => number(body).map(Self::Id),
            4 => {
                let raw = i32::from_le_bytes(body.try_into().ok()?);
                Some(Self::Failed(Errno::from_raw_os_error(raw)))
            }
            _ => None,
        }
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_are_decoded_as_encoded() {
        let questions = [
            Question::User("ann".into()),
            Question::UserName(7),
            Question::GroupName(8),
            Question::GroupId("staff".into()),
            Question::LogSocket(LogDaemon::Journal),
            Question::LogSocket(LogDaemon::Syslog),
        ];
        for question in questions {
            assert_eq!(Question::decode(&question.encode()), Some(question));
        }
        let groups = (0..u32::try_from(GROUPS_PER_USER).unwrap()).collect();
        let answers = [
            Answer::Nobody,
            Answer::User(UnixUser { uid: 1, gid: 2, groups: vec![] }),
            Answer::User(UnixUser { uid: 1, gid: 2, groups }),
            Answer::Text("ann".into()),
            Answer::Id(9),
            Answer::Failed(Errno::MFILE),
        ];
        for answer in answers {
            let bytes = answer.encode();
            assert!(bytes.len() < crate::limits::NAME_SERVICE_ANSWER_BYTES);
            assert_eq!(Answer::decode(&bytes), Some(answer));
        }
        for bad in [&[][..], &[9], &[1, 0], &[3, 0]] {
            assert_eq!(Answer::decode(bad), None);
        }
    }
}
