//! What only the reparse data of a special file tells, or its attributes: which it is,
//! and the numbers of a device.

use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::reparse::{
    MAX_REPARSE_BUFFER, NfsSpecial, ReparseBuffer, ReparseData, ReparseTag,
};

use crate::error::{Cause, During, Result};
use crate::fsctl::control;
use crate::metadata::{FileType, Metadata};
use crate::posix::Kind;
use crate::share::Share;

/// The extended attribute in which the Windows Subsystem for Linux keeps the numbers of a
/// device: the major one and the minor one, of 32 bits each.
const LXDEV: &str = "$LXDEV";

/// A special file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// A symbolic link.
    Symlink,
    /// A character device and its major and minor number.
    CharDevice(u32, u32),
    /// A block device and its major and minor number.
    BlockDevice(u32, u32),
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
}

impl Special {
    fn of_nfs<N>(found: &NfsSpecial<N>) -> Self {
        match *found {
            NfsSpecial::Symlink(_) => Self::Symlink,
            NfsSpecial::Character { major, minor } => Self::CharDevice(major, minor),
            NfsSpecial::Block { major, minor } => Self::BlockDevice(major, minor),
            NfsSpecial::Fifo => Self::Fifo,
            NfsSpecial::Socket => Self::Socket,
        }
    }
}

/// What there is to be asked.
enum Question {
    /// The reparse data, which says all.
    Reparse,
    /// The numbers of a device that is known to be one.
    Attribute(fn(u32, u32) -> Special),
}

impl Question {
    fn about(metadata: &Metadata) -> Option<Self> {
        let tag = match metadata.file_type() {
            FileType::Reparse(tag) => ReparseTag(tag),
            FileType::File | FileType::Directory => ReparseTag(0),
        };
        match (metadata.posix().map(|posix| posix.kind), tag) {
            (_, ReparseTag::LX_CHR) => Some(Self::Attribute(Special::CharDevice)),
            (_, ReparseTag::LX_BLK) => Some(Self::Attribute(Special::BlockDevice)),
            (Some(Kind::CharDevice | Kind::BlockDevice), _)
            | (None | Some(Kind::Plain), ReparseTag::NFS) => Some(Self::Reparse),
            _ => None,
        }
    }
}

impl Metadata {
    /// Whether [`Share::look_into`] would find out more.
    pub fn is_worth_a_look(&self) -> bool {
        self.special.is_none() && Question::about(self).is_some()
    }
}

impl Share {
    /// What is known of `path`, and which special file it is: one request more for those
    /// that tell by their data alone. The same where the server does not say.
    ///
    /// # Errors
    /// When no server answers.
    pub async fn look_into(&self, path: &str, known: Metadata) -> Result<Metadata> {
        if known.special.is_some() {
            return Ok(known);
        }
        let found = match Question::about(&known) {
            None => return Ok(known),
            Some(Question::Reparse) => self.special(path).await,
            Some(Question::Attribute(kind)) => {
                self.extended_attributes(path).await.map(|all| numbers_of(&all, kind))
            }
        };
        match found {
            Ok(special) => Ok(Metadata { special, ..known }),
            // It is refused, or nothing that is understood.
            Err(error) if matches!(error.cause(), Cause::Status(_) | Cause::Protocol(_)) => {
                Ok(known)
            }
            Err(error) => Err(error),
        }
    }

    async fn special(&self, path: &str) -> Result<Option<Special>> {
        const OPERATION: &str = "look into";
        let open = self.open_for(path, AccessMask::READ_ATTRIBUTES, OPERATION).await?;
        let (code, most) = (CtlCode::GET_REPARSE_POINT, MAX_REPARSE_BUFFER as u32);
        let message = control(&open, OPERATION, code, &[], most, &[]).await?;
        let response = ioctl::Response::parse(message.bytes()).during(OPERATION, &open.url)?;
        let buffer = ReparseBuffer::parse(response.output).during(OPERATION, &open.url)?;
        Ok(match buffer.meaning().during(OPERATION, &open.url)? {
            ReparseData::Nfs(special) => Some(Special::of_nfs(&special)),
            _ => None,
        })
    }
}

fn numbers_of(all: &[(String, Vec<u8>)], kind: fn(u32, u32) -> Special) -> Option<Special> {
    let (_, value) = all.iter().find(|(name, _)| name.eq_ignore_ascii_case(LXDEV))?;
    let (major, minor) = value.split_first_chunk::<4>()?;
    let minor: [u8; 4] = minor.try_into().ok()?;
    Some(kind(u32::from_le_bytes(*major), u32::from_le_bytes(minor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_where_the_subsystem_for_linux_has_them() {
        let of = |name: &str, value: &[u8]| {
            numbers_of(&[(name.into(), value.to_vec())], Special::CharDevice)
        };
        let wanted = Some(Special::CharDevice(0x0102, 3));
        assert_eq!(of("$lxdev", &[2, 1, 0, 0, 3, 0, 0, 0]), wanted);
        assert_eq!(of("$LXMOD", &[2, 1, 0, 0, 3, 0, 0, 0]), None);
        for len in [0, 3, 4, 7, 9] {
            assert_eq!(of(LXDEV, &vec![1; len]), None, "{len}");
        }
    }
}
