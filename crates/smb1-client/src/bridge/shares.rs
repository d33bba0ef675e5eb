//! The list of shares of a server without the calls of MS-SRVS. The client asks for it by NetrShareEnum; the
//! bridge answers this call alone, with the list that the server gives by MS-RAP.

use frevo_rpc::srvsvc::{self, ShareEnum, ShareEnumReply, ShareInfo, ShareType};
use frevo_rpc::{Call, Calls, Endpoint, FaultStatus, Outcome, PipeError, Terms, WinError};
use frevo_smb1::open::{Fid, Opened};
use frevo_smb1::shares::{Listed, ListedShare, list, listed};
use frevo_wire::Status;
use frevo_wire::command::create::CreateAction;
use frevo_wire::dtyp::FileTime;
use parking_lot::Mutex;

use super::server::{Failed, Server, Tree};

/// The pipe by which the client asks for shares.
const PIPE: &str = "\\srvsvc";

/// The association group of the only client.
const GROUP: u32 = 1;

/// ERROR_ACCESS_DENIED of MS-ERREF 2.2.
const ACCESS_DENIED: u16 = 5;

/// A pipe at which the bridge itself answers.
#[derive(Debug)]
pub(super) struct ListPipe {
    end: Mutex<End>,
}

#[derive(Debug)]
struct End {
    endpoint: Endpoint,
    shares: Shares,
}

/// The shares of the server.
#[derive(Debug)]
struct Shares(Vec<ShareInfo>);

impl Server {
    /// Returns a pipe with the server's list of shares for an open of `path` that the server has refused, or
    /// does not understand.
    ///
    /// # Errors
    /// The status for the client: `refused` if it is another pipe, or the server lists no shares.
    pub(super) async fn list_pipe(
        &self,
        tree: &Tree,
        path: &str,
        refused: Status,
    ) -> Result<ListPipe, Failed> {
        if !path.eq_ignore_ascii_case(PIPE) {
            return Err(Failed::Status(refused));
        }
        let answer = match self.ask(tree.number, &list(self.charset())?).await {
            Ok(answer) => answer,
            Err(Failed::Status(_)) => return Err(Failed::Status(refused)),
            Err(gone) => return Err(gone),
        };
        let shares = match listed(answer.results(), self.logon.settings.code_page)? {
            Listed::Shares { shares, is_whole } => {
                if !is_whole {
                    tracing::warn!("the server has more shares than it can list by MS-RAP");
                }
                shares
            }
            Listed::Refused(ACCESS_DENIED) => return Err(Failed::Status(Status::ACCESS_DENIED)),
            Listed::Refused(code) => {
                tracing::debug!(code, "the server lists no shares by MS-RAP");
                return Err(Failed::Status(refused));
            }
        };
        let shares = Shares(shares.into_iter().map(shown).collect());
        let endpoint = Endpoint::new(Terms::of_pipe(&srvsvc::INTERFACE, GROUP));
        Ok(ListPipe { end: Mutex::new(End { endpoint, shares }) })
    }
}

impl ListPipe {
    /// Returns the metadata of the pipe.
    pub(super) fn opened() -> Opened {
        Opened {
            fid: Fid(0),
            action: CreateAction::OPENED.0,
            created: FileTime::ZERO,
            accessed: FileTime::ZERO,
            written: FileTime::ZERO,
            changed: FileTime::ZERO,
            attributes: 0,
            allocation: 0,
            len: 0,
            is_directory: false,
        }
    }

    /// Takes bytes of a call.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<(), Failed> {
        let End { endpoint, shares } = &mut *self.end.lock();
        let rest = endpoint.write(bytes, shares).map_err(|why| match why {
            PipeError::Disconnected => Status::PIPE_DISCONNECTED,
            PipeError::Unread => Status::PIPE_BUSY,
        })?;
        // A logon over RPC, which no list of shares needs, waits for a judgement.
        if rest.is_empty() { Ok(()) } else { Err(Failed::Status(Status::NOT_SUPPORTED)) }
    }

    /// Returns bytes of an answer, and BUFFER_OVERFLOW if it has more.
    pub(super) fn read(&self, most: usize) -> Result<(Vec<u8>, Status), Failed> {
        let Some(read) = self.end.lock().endpoint.read(most) else {
            return Err(Failed::Status(Status::PIPE_EMPTY));
        };
        let status = if read.remaining > 0 { Status::BUFFER_OVERFLOW } else { Status::SUCCESS };
        Ok((read.data, status))
    }
}

impl Calls for Shares {
    fn begin(&mut self, call: &Call) -> Outcome {
        Outcome::Ended(match call.opnum {
            srvsvc::SHARE_ENUM => self.list(&call.stub),
            _ => Err(FaultStatus::OP_RNG_ERROR),
        })
    }

    fn cancel(&mut self, _call_id: u32) {}
}

impl Shares {
    /// Answers NetrShareEnum: all shares at once, at the level 1, which is that of the server's list.
    fn list(&self, stub: &[u8]) -> frevo_rpc::Answer {
        let ShareEnum { level, resume, .. } = ShareEnum::parse(stub)?;
        let (shares, status) = match level {
            1 => (&*self.0, WinError::SUCCESS),
            _ => (&[][..], WinError::INVALID_LEVEL),
        };
        let total = u32::try_from(shares.len()).unwrap_or(u32::MAX);
        Ok(ShareEnumReply { level, shares, total, resume, status }.encode())
    }
}

/// Returns a share in the form of MS-SRVS.
fn shown(share: ListedShare) -> ShareInfo {
    let is_special = share.name.ends_with('$');
    let special = if is_special { ShareType::SPECIAL.0 } else { 0 };
    ShareInfo {
        name: share.name,
        kind: ShareType(u32::from(share.kind) | special),
        remark: share.comment,
        ..ShareInfo::default()
    }
}
