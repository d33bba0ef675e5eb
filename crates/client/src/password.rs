//! Change of a user's own password: MS-SAMR 3.1.5.10.3 over the pipe samr.

use frevo_auth::NtHash;
use frevo_auth::password_change::EncryptedChange;
use frevo_wire::rpc::SyntaxId;
use frevo_wire::rpc::samr::{self, ChangePassword};

use crate::ambient::random;
use crate::error::{Cause, During, Error, Result};
use crate::rpc::Pipe;
use crate::session::Session;

impl Session {
    /// Changes the password of `user` of the server from `old` to `new`. Frevo's servers let users
    /// change only their own.
    ///
    /// Sessions that are logged on stay; this session cannot recover after a lost connection,
    /// because its password is the old one.
    ///
    /// # Errors
    /// `Cause::Security` on a session that is not encrypted: the new password is encrypted only with
    /// the hash of the old one. Else the server's status: WRONG_PASSWORD, PASSWORD_RESTRICTION if
    /// the new password breaks a rule of the server, ACCESS_DENIED.
    pub async fn change_password(&self, user: &str, old: &str, new: &str) -> Result<()> {
        const OPERATION: &str = "change the password at";
        let path = format!("smb://{}", self.server());
        if !self.info().is_some_and(|info| info.encrypted) {
            let why = "the session is not encrypted, and the new password could be read";
            return Err(Error::new(Cause::Security(why), OPERATION, path));
        }
        let padding = random(&*self.client().options().ambient).during(OPERATION, &path)?;
        let too_long = || Error::new(Cause::Usage("the password is too long"), OPERATION, &*path);
        let change = EncryptedChange::new(&NtHash::from_password(old), new, &padding);
        let change = change.ok_or_else(too_long)?;
        let call = ChangePassword {
            user: user.to_owned(),
            password: change.password,
            proof: change.proof,
        };
        let mut pipe = Pipe::open(self, "samr", SyntaxId::SAMR).await?;
        let stub = call.encode(&format!("\\\\{}", self.server().host));
        let answer = pipe.call(samr::CHANGE_PASSWORD2, &stub).await?;
        let status = ChangePassword::parse_reply(&answer).during(OPERATION, &path)?;
        if status.is_error() {
            Err(Error::new(status, OPERATION, path).of_user(user))
        } else {
            Ok(())
        }
    }
}
