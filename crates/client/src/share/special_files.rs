//! Special files: their kind and the numbers of a device, which only the reparse data or an
//! extended attribute tell.

use frevo_wire::command::ioctl;
use frevo_wire::fscc::reparse::{ReparseBuffer, ReparseData};

use crate::error::{Cause, During, Result};
use crate::metadata::Metadata;
use crate::metadata::posix::Special;
use crate::metadata::special_files::Question;
use crate::share::Share;

/// The extended attribute in which the Windows Subsystem for Linux keeps the major and the
/// minor number of a device, 32 bits each.
const LXDEV: &str = "$LXDEV";

impl Share {
    /// Completes the metadata of a special file with its kind: one further request for those
    /// whose metadata does not tell. Returns `known` if the server does not tell either.
    ///
    /// # Errors
    /// Fails if the server does not answer.
    #[doc(hidden)]
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
            // The server refuses the query or returns unknown data. So the kind known so far is
            // returned.
            Err(error) if matches!(error.cause(), Cause::Status(_) | Cause::Protocol(_)) => {
                Ok(known)
            }
            Err(error) => Err(error),
        }
    }

    async fn special(&self, path: &str) -> Result<Option<Special>> {
        const OPERATION: &str = "look into";
        let message = self.reparse_data(OPERATION, path).await?;
        let url = self.url(path);
        let response = ioctl::Response::parse(message.bytes()).during(OPERATION, &url)?;
        let buffer = ReparseBuffer::parse(response.output).during(OPERATION, &url)?;
        Ok(match buffer.meaning().during(OPERATION, &url)? {
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
