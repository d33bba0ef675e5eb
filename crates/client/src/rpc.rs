//! RPC through the named pipes of IPC$: MS-RPCE over MS-SMB2.

use std::sync::Arc;

use frevo_auth::Initiator;
use frevo_rpc::client::RpcError;
use frevo_rpc::{AuthLevel, Client as Association, SyntaxId};
use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::ioctl;
use frevo_wire::command::read;
use frevo_wire::dtyp::AccessMask;

use crate::Status;
use crate::ambient::Ambient;
use crate::connection::Call;
use crate::error::{Cause, During, Error, Result};
use crate::limits::ATTEMPTS;
use crate::open::Open;
use crate::open::create::Ask;
use crate::rpc_logon::{self, Carrier, NotBound};
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
    file: PipeFile,
    association: Association,
}

/// The pipe as a file, which carries PDUs.
struct PipeFile(Arc<Open>);

impl Pipe {
    /// Opens `name` and binds to `interface`.
    pub(crate) async fn open(session: &Session, name: &str, interface: SyntaxId) -> Result<Self> {
        let file = PipeFile::open(session, name).await?;
        let mut association = Association::new(interface);
        let bind = association.bind();
        let bound = rpc_logon::bind(&file, &mut association, &bind).await;
        bound.map_err(|why| file.not_bound(why))?;
        Ok(Self { file, association })
    }

    /// Opens `name` and binds to `interface`, with calls that are signed by a logon of their own. None if the
    /// server does not have the interface in this version.
    pub(crate) async fn open_signed(
        session: &Session,
        name: &str,
        interface: SyntaxId,
        logon: Initiator,
        ambient: &dyn Ambient,
    ) -> Result<Option<Self>> {
        let file = PipeFile::open(session, name).await?;
        let mut association = Association::protected(interface, AuthLevel::INTEGRITY);
        match rpc_logon::log_on(&file, &mut association, logon, ambient).await {
            Ok(()) => Ok(Some(Self { file, association })),
            Err(NotBound::Bind(RpcError::NotAccepted)) => Ok(None),
            Err(why) => Err(file.not_bound(why)),
        }
    }

    /// Makes a call and returns the stub of its answer.
    pub(crate) async fn call(&mut self, opnum: u16, stub: &[u8]) -> Result<Vec<u8>> {
        self.call_if_known(opnum, stub).await?.ok_or_else(|| self.file.refused("RPC fault"))
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
            self.file.write(&fragment).await?;
        }
        let mut answer = self.file.exchange(&last).await?;
        loop {
            match self.association.handle_bytes(&answer) {
                Ok(Some(stub)) => return Ok(Some(stub)),
                Ok(None) => {}
                Err(RpcError::Fault(status)) => {
                    tracing::debug!(pipe = %self.url(), opnum, %status, "RPC fault");
                    return Ok(None);
                }
                Err(error) => return Err(self.file.refused_by(error)),
            }
            answer = self.file.more().await?;
        }
    }

    /// The URL, for messages.
    pub(crate) fn url(&self) -> &str {
        &self.file.0.url
    }
}

impl PipeFile {
    async fn open(session: &Session, name: &str) -> Result<Self> {
        let ipc = session.share("IPC$").await?;
        let access = AccessMask::READ_DATA
            | AccessMask::WRITE_DATA
            | AccessMask::APPEND_DATA
            | AccessMask::READ_ATTRIBUTES;
        let mut ask = Ask::existing(access);
        ask.options = CreateOptions::EMPTY;
        let (open, _) = Open::new(&ipc, name, ask, "open").await?;
        Ok(Self(open))
    }

    fn not_bound(&self, why: NotBound<Error>) -> Error {
        let logon = "log on at";
        match why {
            NotBound::Carrier(error) => error,
            NotBound::Bind(error) => self.refused_by(error),
            NotBound::Denied => Error::new(Status::ACCESS_DENIED, logon, &*self.0.url),
            NotBound::Logon(cause) => Error::new(cause, logon, &*self.0.url),
        }
    }

    fn refused_by(&self, error: RpcError) -> Error {
        match error {
            RpcError::Unprotected => {
                let why = "an RPC answer is not protected as it should be; it may be forged";
                Error::new(Cause::Security(why), "call", &*self.0.url)
            }
            error => self.refused(&error.to_string()),
        }
    }

    fn refused(&self, why: &str) -> Error {
        tracing::debug!(pipe = %self.0.url, why, "RPC failed");
        Error::new(Cause::Protocol("its RPC answer is not valid"), "call", &*self.0.url)
    }

    async fn write(&self, data: &[u8]) -> Result<()> {
        self.0
            .ask(Replay::Never, "call", &[], |id| {
                let request = frevo_wire::command::write::Request::new(id, 0, data);
                Ok(Call::new(frevo_wire::Command::WRITE, |w| request.encode(w)))
            })
            .await?;
        Ok(())
    }
}

impl Carrier for PipeFile {
    type Error = Error;

    async fn exchange(&self, input: &[u8]) -> Result<Vec<u8>> {
        let call = crate::open::fsctl::transceive(input, FRAGMENT);
        let also = [Status::BUFFER_OVERFLOW];
        let message = self.0.ask(Replay::Never, "call", &also, |id| Ok(call(id))).await?;
        let response = ioctl::Response::parse(message.bytes()).during("call", &self.0.url)?;
        Ok(response.output.to_vec())
    }

    async fn more(&self) -> Result<Vec<u8>> {
        let also = [Status::BUFFER_OVERFLOW];
        let message = self
            .0
            .ask(Replay::Never, "call", &also, |id| {
                let request = read::Request::new(id, 0, FRAGMENT);
                Ok(Call::new(frevo_wire::Command::READ, |w| request.encode(w)).cost(FRAGMENT))
            })
            .await?;
        let response = read::Response::parse(message.bytes()).during("call", &self.0.url)?;
        if response.data.is_empty() {
            return Err(self.refused("the answer ends in the middle"));
        }
        Ok(response.data.to_vec())
    }
}
