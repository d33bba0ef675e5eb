//! The other end of a client's connection: it answers requests of SMB 2.1 by asking the server in SMB1.
//!
//! The client is in this process, so its requests are taken as they are. The server may be hostile: what it
//! answers was checked by `frevo_smb1`, and reaches the client in the form of SMB 2.1.

mod data;
mod directory;
mod info;
mod open;
mod rename;
mod reply;
mod server;
mod session;
mod shares;

use std::sync::Arc;

use frevo_net::buffer::Buf;
use frevo_net::frame_reader::FrameReader;
use frevo_net::transport::Stream;
use frevo_wire::codec::Writer;
use frevo_wire::command::{echo, logoff};
use frevo_wire::compound::Compound;
use frevo_wire::file_id::FileId;
use frevo_wire::{Command, Header, HeaderFlags, Status};
use tokio::task::JoinSet;

use crate::limits::REQUEST_BYTES_MAX;
use crate::logon::{Logon, Reached};
use crate::stream::write_all;
use reply::{Good, Reply};
use server::{Failed, Server};

/// A bridge between a client and a server.
pub(crate) struct Bridge {
    server: Server,
    stream: Stream,
    /// Held while a reply is written, which several tasks make.
    writing: tokio::sync::Mutex<()>,
}

/// The requests of a compound so far.
#[derive(Default)]
struct Related {
    tree: u32,
    file: Option<FileId>,
    /// The status of a request that made no Open: those related to it fail as it did.
    failed: Option<Status>,
}

/// The question of one request.
struct Asked<'a> {
    /// The frame that the message is in.
    frame: &'a Arc<Buf>,
    message: &'a [u8],
    tree: u32,
    /// The Open of the request before, in a related request.
    file: Option<FileId>,
}

impl Bridge {
    /// Returns the server's end of a bridge.
    pub(crate) fn new(reached: Reached, logon: Arc<Logon>, host: String, stream: Stream) -> Self {
        let server = Server::new(reached, logon, host);
        Self { server, stream, writing: tokio::sync::Mutex::default() }
    }

    /// Answers requests until either end is gone.
    pub(crate) async fn serve(self) {
        let bridge = Arc::new(self);
        let mut reader = FrameReader::new(REQUEST_BYTES_MAX);
        let mut tasks = JoinSet::new();
        loop {
            let frame = tokio::select! {
                frame = reader.next(&bridge.stream) => frame,
                () = bridge.server.ended() => break,
            };
            let Ok(Some(frame)) = frame else { break };
            while tasks.try_join_next().is_some() {}
            let bridge = Arc::clone(&bridge);
            tasks.spawn(async move { bridge.answer(Arc::new(frame)).await });
        }
        // The client hears of the end and comes back, if it wants to.
        bridge.stream.abort();
    }

    /// Answers the requests of a frame, one after the other.
    async fn answer(&self, frame: Arc<Buf>) {
        let mut reply = Reply::default();
        let mut related = Related::default();
        for message in Compound::new(&frame) {
            let answered = match message {
                Ok((_, message)) => {
                    self.answer_one(&frame, message, &mut related, &mut reply).await
                }
                Err(_) => Err(Failed::Gone),
            };
            if answered.is_err() {
                return self.stream.abort();
            }
        }
        if reply.is_empty() {
            return;
        }
        let _turn = self.writing.lock().await;
        let written = reply.with_parts(async |parts| write_all(&self.stream, parts).await);
        if written.await.is_err() {
            self.stream.abort();
        }
    }

    /// Answers one request. Fails if the server is gone.
    async fn answer_one(
        &self,
        frame: &Arc<Buf>,
        message: &[u8],
        related: &mut Related,
        reply: &mut Reply,
    ) -> Result<(), Failed> {
        let Ok(header) = Header::parse(message) else { return Err(Failed::Gone) };
        if header.command == Command::CANCEL {
            return Ok(());
        }
        let is_related = header.flags.contains(HeaderFlags::RELATED_OPERATIONS);
        if !is_related {
            *related = Related { tree: header.tree_id().unwrap_or(0), ..Related::default() };
        }
        let asked = Asked {
            frame,
            message,
            tree: related.tree,
            file: if is_related { related.file } else { None },
        };
        let handled = match related.failed.filter(|_| is_related) {
            Some(status) => Err(Failed::Status(status)),
            None => self.handle(header.command, &asked).await,
        };
        match handled {
            Ok(good) => {
                related.file = good.file.or(related.file);
                reply.push(&header, good);
            }
            Err(Failed::Status(status)) => {
                if header.command == Command::CREATE {
                    related.failed = Some(status);
                }
                reply.push_error(&header, status);
            }
            Err(Failed::Gone) => return Err(Failed::Gone),
        }
        Ok(())
    }

    async fn handle(&self, command: Command, asked: &Asked<'_>) -> Result<Good, Failed> {
        let Asked { frame, message, tree, file } = *asked;
        let server = &self.server;
        match command {
            Command::NEGOTIATE => server.negotiate(),
            Command::SESSION_SETUP => server.session_setup().await,
            Command::TREE_CONNECT => server.tree_connect(message).await,
            Command::TREE_DISCONNECT => server.tree_disconnect(tree).await,
            Command::LOGOFF => {
                server.log_off().await;
                Ok(Good::of(|w: &mut Writer<'_>| logoff::Response.encode(w)))
            }
            Command::ECHO => {
                server.echo().await?;
                Ok(Good::of(|w: &mut Writer<'_>| echo::Response.encode(w)))
            }
            Command::CREATE => server.create(message, tree).await,
            Command::CLOSE => server.close(message, file).await,
            Command::FLUSH => server.flush(message, file).await,
            Command::READ => server.read(message, file).await,
            Command::WRITE => server.write(frame, message, file).await,
            Command::IOCTL => server.ioctl(message, file).await,
            Command::QUERY_DIRECTORY => server.query_directory(message, file).await,
            Command::QUERY_INFO => server.query_info(message, file).await,
            Command::SET_INFO => server.set_info(message, file).await,
            _ => Err(Failed::Status(Status::NOT_SUPPORTED)),
        }
    }
}
