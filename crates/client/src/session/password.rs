//! Change of a user's own password over the pipe samr: MS-SAMR 3.1.5.10.4, or 3.1.5.10.3 where the
//! server does not know that.

use frevo_auth::NtHash;
use frevo_auth::password_change::EncryptedChange;
use frevo_crypto::{PASSWORD_FIELD, SealedPassword};
use frevo_rpc::SyntaxId;
use frevo_rpc::samr::{self, ChangePassword, ChangePasswordAes};

use crate::ambient::random;
use crate::error::{Cause, During, Error, Result};
use crate::rpc::Pipe;
use crate::session::Session;

/// Iterations of PBKDF2 that the new password is sealed with, as Samba and Windows have them.
const ITERATIONS: u64 = 10_000;

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
        let path = format!("{}{}", self.options().scheme(), self.server());
        if !self.info().is_some_and(|info| info.encrypted) {
            let why = "the session is not encrypted, and the new password could be read";
            return Err(Error::new(Cause::Security(why), OPERATION, path));
        }
        let old = NtHash::from_password(old);
        let stub = sealed(self, user, &old, new).during(OPERATION, &path)?;
        let mut pipe = Pipe::open(self, "samr", SyntaxId::SAMR).await?;
        let answer = match pipe.call_if_known(samr::CHANGE_PASSWORD4, &stub).await? {
            Some(answer) => answer,
            // The server refused the newer request, as servers before Windows Server 2022 or Samba
            // 4.18 do. So the older one is sent.
            None => {
                let stub = encrypted(self, user, &old, new).during(OPERATION, &path)?;
                let mut pipe = Pipe::open(self, "samr", SyntaxId::SAMR).await?;
                pipe.call(samr::CHANGE_PASSWORD2, &stub).await?
            }
        };
        let status = ChangePassword::parse_reply(&answer).during(OPERATION, &path)?;
        if status.is_error() {
            Err(Error::new(status, OPERATION, path).of_user(user))
        } else {
            Ok(())
        }
    }
}

const TOO_LONG: Cause = Cause::Usage("the password is too long");

/// The stub of the call that seals the new password with AES.
fn sealed(
    session: &Session,
    user: &str,
    old: &NtHash,
    new: &str,
) -> std::result::Result<Vec<u8>, Cause> {
    let ambient = &*session.client().options().ambient;
    let filling: [u8; PASSWORD_FIELD] = random(ambient)?;
    let sealed = SealedPassword::seal(old.as_bytes(), new, random(ambient)?, &filling, ITERATIONS);
    let SealedPassword { auth_data, salt, cipher, iterations } = sealed.ok_or(TOO_LONG)?;
    let call = ChangePasswordAes { user: user.to_owned(), auth_data, salt, cipher, iterations };
    Ok(call.encode(&server_name(session)))
}

/// The stub of the call that encrypts it with RC4, as all servers know it.
fn encrypted(
    session: &Session,
    user: &str,
    old: &NtHash,
    new: &str,
) -> std::result::Result<Vec<u8>, Cause> {
    let padding = random(&*session.client().options().ambient)?;
    let change = EncryptedChange::new(old, new, &padding).ok_or(TOO_LONG)?;
    let (password, proof) = (change.password, change.proof);
    let call = ChangePassword { user: user.to_owned(), password, proof };
    Ok(call.encode(&server_name(session)))
}

fn server_name(session: &Session) -> String {
    format!("\\\\{}", session.server().host)
}
