//! RPC through the named pipes of IPC$: MS-RPCE over MS-SMB2.

use std::sync::Arc;

use frevo_auth::Initiator;
use frevo_auth::initiator::Step;
use frevo_rpc::client::RpcError;
use frevo_rpc::{AuthLevel, Client as Association, SyntaxId};
use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::ioctl;
use frevo_wire::command::read;
use frevo_wire::dtyp::AccessMask;

use crate::Status;
use crate::ambient::{Ambient, random};
use crate::connection::Call;
use crate::error::{Cause, During, Error, Result};
use crate::limits::{ATTEMPTS, LOGON_ROUNDS};
use crate::open::Open;
use crate::open::create::Ask;
use crate::session::Session;
use crate::share::Replay;

/// Most bytes of an answer to read at once.
const FRAGMENT: u32 = 65_536;

/// Repetitions of a question over a pipe. The server does not recognise a repeated call, and a
/// question is asked again through another pipe when its answer was lost with a channel.
#[derive(Debug)]
pub(crate) struct Repeats<'a> {
    session: &'a Session,
    /// The session in which the question is asked; `None` while it is being recovered.
    generation: Option<u64>,
    left: u32,
}

impl<'a> Repeats<'a> {
    pub(crate) fn of(session: &'a Session) -> Self {
        Self { session, generation: session.generation(), left: ATTEMPTS }
    }

    /// Returns true if the question is to be asked again after this error: the session lives on. One
    /// that is lost with its last channel waited for as long as the caller may wait.
    pub(crate) fn may_repeat(&mut self, error: &Error) -> bool {
        let now = self.session.generation();
        let lives_on = now.is_some() && self.generation.is_none_or(|then| now == Some(then));
        self.generation = now;
        self.left = self.left.saturating_sub(1);
        lives_on && self.left > 0 && matches!(error.cause(), Cause::Unknown | Cause::HandleLost)
    }
}

/// An open pipe that is bound to an interface.
pub(crate) struct Pipe {
    open: Arc<Open>,
    association: Association,
}

impl Pipe {
    /// Opens `name` and binds to `interface`.
    pub(crate) async fn open(session: &Session, name: &str, interface: SyntaxId) -> Result<Self> {
        let mut pipe = Self::unbound(session, name, Association::new(interface)).await?;
        let bind = pipe.association.bind();
        pipe.bound(&bind).await?.map_err(|error| pipe.refused(&error.to_string()))?;
        Ok(pipe)
    }

    /// Opens `name` and binds to `interface`, with calls that are signed by a logon of their own. None if the
    /// server does not have the interface in this version.
    pub(crate) async fn open_signed(
        session: &Session,
        name: &str,
        interface: SyntaxId,
        mut logon: Initiator,
        ambient: &dyn Ambient,
    ) -> Result<Option<Self>> {
        let association = Association::protected(interface, AuthLevel::INTEGRITY);
        let mut pipe = Self::unbound(session, name, association).await?;
        let url = pipe.open.url.clone();
        let token = logon.initial_token(&[], ambient.now().0).during("log on at", &url)?;
        let mut pdu = pipe.association.bind_with(&token);
        for round in 0..LOGON_ROUNDS {
            match pipe.bound(&pdu).await? {
                Ok(()) => {}
                Err(RpcError::NotAccepted) => return Ok(None),
                // Only the answer to a challenge can be wrong.
                Err(RpcError::Fault(_) | RpcError::Refused(_)) if round > 0 => {
                    return Err(Error::new(Status::ACCESS_DENIED, "log on at", url));
                }
                Err(error) => return Err(pipe.refused_by(error)),
            }
            let step = logon.step(&pipe.association.token(), ambient.now().0);
            match step.during("log on at", &url)? {
                Step::Continue(token) => pdu = pipe.association.go_on_with(&token),
                Step::Done(_) => {
                    let confounder = random(ambient).during("log on at", &url)?;
                    let established = pipe.association.establish(logon.protection(confounder));
                    established.map_err(|error| pipe.refused_by(error))?;
                    return Ok(Some(pipe));
                }
            }
        }
        Err(pipe.refused("the logon takes too many rounds"))
    }

    /// Writes a bind, or a further token of the logon, and takes its answer.
    async fn bound(&mut self, pdu: &[u8]) -> Result<std::result::Result<(), RpcError>> {
        let mut answer = self.exchange(pdu).await?;
        loop {
            match self.association.handle_bind_reply(&answer) {
                Ok(true) => return Ok(Ok(())),
                Ok(false) => answer = self.more().await?,
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    async fn unbound(session: &Session, name: &str, association: Association) -> Result<Self> {
        let ipc = session.share("IPC$").await?;
        let access = AccessMask::READ_DATA
            | AccessMask::WRITE_DATA
            | AccessMask::APPEND_DATA
            | AccessMask::READ_ATTRIBUTES;
        let mut ask = Ask::existing(access);
        ask.options = CreateOptions::EMPTY;
        let (open, _) = Open::new(&ipc, name, ask, "open").await?;
        Ok(Self { open, association })
    }

    /// Makes a call and returns the stub of its answer.
    pub(crate) async fn call(&mut self, opnum: u16, stub: &[u8]) -> Result<Vec<u8>> {
        self.call_if_known(opnum, stub).await?.ok_or_else(|| self.refused("RPC fault"))
    }

    /// Makes a call and returns the stub of its answer. None when the server answers with a fault,
    /// as it does to a call that it does not know; the pipe is not used further.
    pub(crate) async fn call_if_known(
        &mut self,
        opnum: u16,
        stub: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let mut fragments = self.association.call(opnum, stub);
        let last = fragments.pop().unwrap_or_default();
        for fragment in fragments {
            self.write(&fragment).await?;
        }
        let mut answer = self.exchange(&last).await?;
        loop {
            match self.association.handle_bytes(&answer) {
                Ok(Some(stub)) => return Ok(Some(stub)),
                Ok(None) => {}
                Err(RpcError::Fault(status)) => {
                    tracing::debug!(pipe = %self.open.url, opnum, %status, "RPC fault");
                    return Ok(None);
                }
                Err(error) => return Err(self.refused_by(error)),
            }
            answer = self.more().await?;
        }
    }

    /// The URL, for messages.
    pub(crate) fn url(&self) -> &str {
        &self.open.url
    }

    fn refused_by(&self, error: RpcError) -> Error {
        match error {
            RpcError::Unprotected => {
                let why = "an RPC answer is not protected as it should be; it may be forged";
                Error::new(Cause::Security(why), "call", &*self.open.url)
            }
            error => self.refused(&error.to_string()),
        }
    }

    fn refused(&self, why: &str) -> Error {
        tracing::debug!(pipe = %self.open.url, why, "RPC failed");
        Error::new(Cause::Protocol("its RPC answer is not valid"), "call", &*self.open.url)
    }

    async fn exchange(&self, input: &[u8]) -> Result<Vec<u8>> {
        let call = crate::open::fsctl::transceive(input, FRAGMENT);
        let also = [Status::BUFFER_OVERFLOW];
        let message = self.open.ask(Replay::Never, "call", &also, |id| Ok(call(id))).await?;
        let response = ioctl::Response::parse(message.bytes()).during("call", &self.open.url)?;
        Ok(response.output.to_vec())
    }

    async fn write(&self, data: &[u8]) -> Result<()> {
        self.open
            .ask(Replay::Never, "call", &[], |id| {
                let request = frevo_wire::command::write::Request::new(id, 0, data);
                Ok(Call::new(frevo_wire::Command::WRITE, |w| request.encode(w)))
            })
            .await?;
        Ok(())
    }

    async fn more(&self) -> Result<Vec<u8>> {
        let also = [Status::BUFFER_OVERFLOW];
        let message = self
            .open
            .ask(Replay::Never, "call", &also, |id| {
                let request = read::Request::new(id, 0, FRAGMENT);
                Ok(Call::new(frevo_wire::Command::READ, |w| request.encode(w)).cost(FRAGMENT))
            })
            .await?;
        let response = read::Response::parse(message.bytes()).during("call", &self.open.url)?;
        if response.data.is_empty() {
            return Err(self.refused("the answer ends in the middle"));
        }
        Ok(response.data.to_vec())
    }
}
