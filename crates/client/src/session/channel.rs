//! A channel: one connection as one session uses it, MS-SMB2 3.2.1.8.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};

use frevo_crypto::{OpeningKey, SealingKey, SigningKey};
use frevo_net::transport::Transport;
use frevo_proto::Negotiated;
use frevo_proto::protection::receive_policy::{self, Demand};
use frevo_proto::protection::{Protection, send_policy};
use frevo_wire::command::logoff::Request as Logoff;
use frevo_wire::command::negotiate::GlobalCapabilities;
use frevo_wire::dtyp::Guid;
use frevo_wire::{Command, HeaderFlags};
use parking_lot::{Mutex, RwLock};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::activity::Activity;
use super::operations::Operations;
use super::renewal::Renewal;
use crate::Status;
use crate::connection::{Call, Connection, Gone, Guard, Message, Offer, Proof, Sent, Vigilance};
use crate::dial::ServerName;
use crate::error::Cause;
use crate::limits::CANCEL_WITHIN;

/// Keys and policy of a session, on all its channels. By default there are none.
#[derive(Default)]
pub(crate) struct Security {
    pub(crate) sealing: Option<Arc<SealingKey>>,
    /// A second copy of the key, whose nonces begin again: see `NonceTwice`.
    #[cfg(feature = "plant")]
    pub(crate) twin: Option<Arc<SealingKey>>,
    pub(crate) opening: Option<Arc<OpeningKey>>,
    /// True if every message is encrypted.
    pub(crate) seal: bool,
    /// True if every message that is not encrypted is signed.
    pub(crate) sign: bool,
    /// Session.SigningRequired: one of both ends demands signatures.
    pub(crate) signing_required: bool,
}

/// One connection with its own signing key. Dropping it ends the connection.
pub(crate) struct Channel {
    pub(crate) connection: Arc<Connection>,
    /// `None` for a guest.
    pub(crate) signing: Option<Arc<SigningKey>>,
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.connection.close();
    }
}

/// A session from its logon to the loss of its last channel.
pub(crate) struct Live {
    /// Number of the logon. Tree connects and Opens of another number are made again.
    pub(crate) generation: u64,
    pub(crate) session_id: u64,
    /// The address of its node, as it is dialled.
    pub(crate) address: ServerName,
    /// The ServerGuid of its node.
    pub(crate) server_guid: Guid,
    /// The offer with which its connections are negotiated.
    pub(crate) offer: Offer,
    /// How soon a loss of its node is noticed: sooner if a share in it outlives the node.
    pub(super) vigilance: Mutex<Vigilance>,
    pub(crate) security: Security,
    /// Session.SigningKey, that of the first channel; it signs the binding of further ones. `None`
    /// for a guest.
    pub(super) signing: Option<Arc<SigningKey>>,
    pub(crate) terms: Negotiated,
    pub(crate) capabilities: GlobalCapabilities,
    /// True if the POSIX extensions were negotiated.
    pub(crate) posix: bool,
    pub(crate) channels: RwLock<Vec<Arc<Channel>>>,
    /// Session.ChannelSequence, which counts lost channels.
    pub(crate) sequence: AtomicU16,
    /// True after its node was to be left: no request is begun in it.
    pub(super) is_left: AtomicBool,
    /// True after a channel ended because the server had fallen silent.
    pub(super) is_silent: AtomicBool,
    /// The way in which the server broke the protocol, if that ended a channel.
    pub(crate) broken: OnceLock<Cause>,
    /// True if the session may have several channels.
    pub(crate) is_wide: bool,
    /// Numbers of operations on names.
    pub(crate) operations: Operations,
    /// The end of the user's ticket; `None` after a logon by NTLM.
    pub(super) renewal: Option<Renewal>,
    /// The tasks that look after the channels; they end with the session.
    pub(super) keepers: Mutex<Vec<AbortHandle>>,
    /// Activity that these tasks wait for.
    pub(super) activity: Arc<Activity>,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.dismiss();
    }
}

/// The failure of a request.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// The channel or the session was lost after the request was sent.
    Gone,
    /// The channel was lost before the request was sent.
    Unsent,
    /// A further attempt would fail too.
    Final(Cause),
}

impl From<Gone> for Failure {
    fn from(Gone: Gone) -> Self {
        Self::Gone
    }
}

impl From<Cause> for Failure {
    fn from(cause: Cause) -> Self {
        Self::Final(cause)
    }
}

impl Live {
    fn dismiss(&self) {
        self.keepers.lock().drain(..).for_each(|task| task.abort());
    }

    /// Returns the channel with the fewest bytes under way.
    pub(crate) fn channel(&self) -> Option<Arc<Channel>> {
        self.activity.note();
        let channels = self.channels.read();
        let live = channels.iter().filter(|channel| !channel.connection.is_gone());
        live.min_by_key(|channel| channel.connection.load()).cloned()
    }

    /// Lets its user log on at another node. Requests under way go on.
    pub(super) fn part(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    /// Returns true if requests can be sent.
    pub(crate) fn is_alive(&self) -> bool {
        !self.is_left.load(Ordering::Acquire) && self.has_channels()
    }

    /// Returns true if a connection has not ended.
    pub(super) fn has_channels(&self) -> bool {
        self.channels.read().iter().any(|channel| !channel.connection.is_gone())
    }

    /// Sends the requests that were held back.
    pub(crate) fn hurry(&self) {
        self.channels.read().iter().for_each(|channel| channel.connection.hurry());
    }

    /// Adds a channel. Returns false if all others were lost meanwhile: the session is over, and a
    /// new one that its user has begun to make ends it on the server.
    pub(super) fn widen(&self, channel: Channel) -> bool {
        let mut channels = self.channels.write();
        let is_alive = channels.iter().any(|channel| !channel.connection.is_gone());
        if is_alive {
            channel.connection.be_vigilant(*self.vigilance.lock());
            channels.push(Arc::new(channel));
        }
        is_alive
    }

    /// Notices the loss of the node sooner from now on.
    pub(super) fn be_vigilant(&self, vigilance: Vigilance) {
        let channels = self.channels.read();
        let mut now = self.vigilance.lock();
        if (*now as u8) < vigilance as u8 {
            *now = vigilance;
            channels.iter().for_each(|channel| channel.connection.be_vigilant(vigilance));
        }
    }

    /// Returns true if a connection has ended because the server had fallen silent.
    pub(super) fn fell_silent(&self) -> bool {
        let is_silent = |channel: &Arc<Channel>| {
            matches!(channel.connection.why(),
            Some(Cause::Transport(error)) if error.kind() == std::io::ErrorKind::TimedOut)
        };
        self.is_silent.load(Ordering::Acquire) || self.channels.read().iter().any(is_silent)
    }

    /// Removes dead channels. Requests that are repeated on the others have a new
    /// ChannelSequence (MS-SMB2 3.2.4.1.5, 3.3.5.2.10): the server then knows that late
    /// requests of the dead channel are stale.
    pub(crate) fn prune(&self) {
        if self.channels.read().iter().all(|channel| !channel.connection.is_gone()) {
            return;
        }
        let mut channels = self.channels.write();
        let before = channels.len();
        for channel in channels.iter().filter(|channel| channel.connection.is_gone()) {
            if let Some(Cause::Transport(error)) = channel.connection.why()
                && error.kind() == std::io::ErrorKind::TimedOut
            {
                self.is_silent.store(true, Ordering::Release);
            }
            if let Some(why @ (Cause::Protocol(_) | Cause::NotSmb | Cause::Security(_))) =
                channel.connection.why()
            {
                let _ = self.broken.set(why.clone());
            }
        }
        channels.retain(|channel| !channel.connection.is_gone());
        if channels.len() != before && !planted!(SequenceStands) {
            self.sequence.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Returns the number of channels that were lost so far: Session.ChannelSequence.
    pub(crate) fn losses(&self) -> u16 {
        self.sequence.load(Ordering::Acquire)
    }

    /// Ends all channels after the server has ended the session.
    pub(crate) fn abandon(&self) {
        self.dismiss();
        self.channels.write().clear();
    }

    /// Returns the largest payload of one READ or WRITE that the credits and the transports of all
    /// channels allow, bytes. Requests are encrypted in any case if `seal`.
    pub(crate) fn affordable(&self, seal: bool) -> u32 {
        self.least(|connection| {
            let protection = self.rule(connection, true, seal, false).protection();
            connection.most_moved(connection.affordable(), protection)
        })
    }

    /// Returns the largest payload of one message that the credits and the transports of all
    /// channels allow, bytes.
    pub(crate) fn affordable_in_message(&self) -> u32 {
        self.least(|connection| connection.most_in_message(connection.affordable()))
    }

    fn least(&self, most: impl Fn(&Connection) -> u32) -> u32 {
        let channels = self.channels.read();
        channels.iter().map(|channel| most(&channel.connection)).min().unwrap_or(65_536)
    }

    /// Returns the key that proves data which the server puts into lent memory.
    fn proof(&self, channel: &Channel, guard: Guard<'_>) -> Result<Proof, Cause> {
        let key = match guard.protection() {
            Protection::None => return Ok(Proof::None),
            Protection::Signed => channel.signing.clone().map(Proof::Signed),
            Protection::Sealed => self.security.opening.clone().map(Proof::Sealed),
        };
        key.ok_or(Cause::Security("this session has no keys for the data of its requests"))
    }

    pub(super) fn guard<'a>(
        &'a self,
        channel: &'a Channel,
        seal: bool,
        sign: bool,
    ) -> Result<Guard<'a>, Cause> {
        let protection = self.rule_of(channel, seal, sign).protection();
        if protection == Protection::Sealed {
            #[cfg(feature = "plant")]
            if let Some(twin) = &self.security.twin
                && planted!(NonceTwice)
                && crate::plant::is_second()
            {
                return Ok(Guard::Sealed(twin));
            }
            let key = self.security.sealing.as_ref();
            return key.map(Guard::Sealed).ok_or(Cause::Security(
                "the share requires encryption, but this session has no keys for it",
            ));
        }
        Ok(match &channel.signing {
            Some(key) if protection == Protection::Signed => Guard::Signed(key),
            _ => Guard::None,
        })
    }

    /// Returns true if the transport of every channel encrypts in place of SMB.
    pub(crate) fn is_sealed_by_transport(&self) -> bool {
        let channels = self.channels.read();
        let seals = |channel: &Arc<Channel>| channel.connection.agreed().accepts_transport_security;
        !channels.is_empty() && channels.iter().all(seals)
    }

    /// Returns the facts that decide on the protection of a request on a channel, and of its answer.
    fn rule_of(&self, channel: &Channel, seal: bool, sign: bool) -> send_policy::Request {
        self.rule(&channel.connection, channel.signing.is_some(), seal, sign)
    }

    fn rule(
        &self,
        connection: &Connection,
        has_signing_key: bool,
        seal: bool,
        sign: bool,
    ) -> send_policy::Request {
        send_policy::Request {
            transport_seals: connection.agreed().accepts_transport_security,
            session_seals: self.security.seal,
            tree_seals: seal,
            session_signs: self.security.sign,
            must_sign: sign,
            has_signing_key,
        }
    }

    /// Sends a request on `channel`.
    pub(crate) async fn send(
        &self,
        channel: &Channel,
        mut call: Call<'_>,
        seal: bool,
    ) -> Result<Sent, Failure> {
        // MS-SMB2 3.3.5.2.9: LOGOFF and CLOSE are allowed after the ticket has expired.
        if !matches!(call.command, Command::LOGOFF | Command::CLOSE) {
            self.fresh().await?;
        }
        let guard = self.guard(channel, seal, call.sign)?;
        if channel.connection.transport().facts().moves_data {
            let proof = self.proof(channel, guard)?;
            let lent = channel.connection.lend(&mut call, guard, proof).await;
            lent.map_err(|why| match why {
                Cause::Transport(_) => Failure::Unsent,
                why => Failure::Final(why),
            })?;
        }
        let taken = channel.connection.number(&call).await.map_err(|Gone| Failure::Unsent)?;
        // The ChannelSequence is set after the wait for credits. If a channel is lost during the
        // wait, the request gets the new number and is not refused as an old one.
        self.stamp(&mut call);
        let is_sealed = guard.protection() == Protection::Sealed;
        if is_sealed && channel.connection.is_sealed_beside(call.payload_len())
            || channel.connection.is_compressed_beside(&call)
        {
            return Ok(channel.connection.send_beside(taken, call, guard)?);
        }
        Ok(channel.connection.send_as(taken, call, guard)?.0)
    }

    /// Sends related requests on `channel` and returns their answers in order.
    pub(crate) async fn chain(
        &self,
        channel: &Channel,
        mut calls: Vec<Call<'_>>,
        seal: bool,
    ) -> Result<Vec<Message>, Failure> {
        self.fresh().await?;
        let guard = self.guard(channel, seal, false)?;
        let tree_id = calls.first().map_or(0, |first| first.tree_id);
        for (at, call) in calls.iter_mut().enumerate() {
            self.stamp(call);
            if at > 0 {
                // MS-SMB2 3.2.4.1.4: a related request carries the TreeId of the first request.
                call.flags |= HeaderFlags::RELATED_OPERATIONS;
                call.tree_id = tree_id;
            }
        }
        let begun = channel.connection.begin_chain(calls, guard).await;
        let (frame, sent) = begun.map_err(|Gone| Failure::Unsent)?;
        channel.connection.put(frame)?;
        let mut answers = Vec::with_capacity(sent.len());
        for sent in sent {
            match self.checked(channel, sent.await?, seal, false) {
                // The ticket expired within the compound, whose first requests were carried out. So
                // the compound counts as lost, not as unsent.
                Err(Failure::Unsent) if !answers.is_empty() => return Err(Failure::Gone),
                answer => answers.push(answer?),
            }
        }
        Ok(answers)
    }

    fn stamp(&self, call: &mut Call<'_>) {
        call.session_id = self.session_id;
        if self.terms.is_smb3() {
            call.channel_sequence = self.losses();
        }
    }

    /// Sends a request and returns its verified answer. Dropping the future cancels the
    /// request.
    pub(crate) async fn call(
        self: &Arc<Self>,
        channel: &Arc<Channel>,
        mut call: Call<'_>,
        seal: bool,
    ) -> Result<Message, Failure> {
        let (sign, waits, patience) = (call.sign, call.waits, call.patience.take());
        let sent = self.send(channel, call, seal).await?;
        let mut waiting = Waiting { live: self, channel, sent: Some(sent), waits, seal };
        let message = match patience {
            None => waiting.answer().await,
            Some(patience) => tokio::select! {
                biased;
                message = waiting.answer() => message,
                () = patience.ended() => match waiting.sent.take() {
                    Some(sent) => self.cancelled(channel, sent, seal).await,
                    None => Err(Gone),
                },
            },
        };
        self.checked(channel, message?, seal, sign)
    }

    fn cancel(&self, channel: &Channel, id: u64, waits: bool, seal: bool) {
        if let Ok(guard) = self.guard(channel, seal, false) {
            channel.connection.cancel(id, waits, self.session_id, guard);
        }
    }

    /// Cancels a request and returns its answer: it may have been carried out before.
    async fn cancelled(
        &self,
        channel: &Channel,
        mut sent: Sent,
        seal: bool,
    ) -> Result<Message, Gone> {
        let id = sent.id;
        let put_off = channel.connection.put_off(id);
        self.cancel(channel, id, true, seal);
        let answer = async {
            if let Some(put_off) = put_off {
                tokio::select! {
                    biased;
                    message = &mut sent => return message,
                    _ = put_off => {}
                }
                // After the interim response the server may find the request only by its AsyncId,
                // so CANCEL is sent again with the AsyncId.
                self.cancel(channel, id, true, seal);
            }
            sent.await
        };
        timeout(CANCEL_WITHIN, answer).await.unwrap_or_else(|_elapsed| {
            channel.connection.fail(Cause::Protocol("it does not answer a cancelled request"));
            Err(Gone)
        })
    }

    /// Sends a request on any channel. A status other than SUCCESS and those of `also` is a
    /// failure.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        call: Call<'_>,
        seal: bool,
        also: &[Status],
    ) -> Result<Message, Failure> {
        let channel = self.channel().ok_or(Failure::Unsent)?;
        let message = self.call(&channel, call, seal).await?;
        let status = message.status();
        if status == Status::SUCCESS || also.contains(&status) {
            return Ok(message);
        }
        Err(Failure::Final(status.into()))
    }

    /// Checks the protection of an answer, MS-SMB2 3.2.5.1.1 and 3.2.5.1.3: an encrypted request
    /// is answered encrypted, a signed one signed.
    pub(crate) fn checked(
        &self,
        channel: &Channel,
        mut message: Message,
        seal: bool,
        sign: bool,
    ) -> Result<Message, Failure> {
        let status = message.status();
        let request = self.rule_of(channel, seal, sign).protection();
        let demand = self.answer(channel, &message, request).demand();
        let is_good = is_met(demand, channel, &mut message);
        if status == Status::NETWORK_SESSION_EXPIRED && self.note_expiry() {
            // The request counts as unsent, and the next attempt authenticates first. An attacker
            // who forges this status gains no more than by cutting the connection.
            return Err(Failure::Unsent);
        }
        if matches!(status, Status::USER_SESSION_DELETED | Status::NETWORK_SESSION_EXPIRED) {
            // An ended session has no key, so this answer cannot be signed. An attacker who forges
            // it gains no more than by cutting the connection.
            channel.connection.close();
            return Err(Failure::Gone);
        }
        if !is_good {
            let why = if request == Protection::Sealed {
                Cause::Security(
                    "the server sent an answer that should be encrypted and is not; it may be forged",
                )
            } else {
                Cause::Security(
                    "the server sent an answer without a valid signature; it may be forged",
                )
            };
            channel.connection.fail(why.clone());
            return Err(why.into());
        }
        Ok(message)
    }

    /// Checks the protection of an answer to a SESSION_SETUP of this session: success must be proved.
    pub(super) fn proved(&self, channel: &Channel, mut message: Message) -> Result<Message, Cause> {
        let request = self.rule_of(channel, false, true).protection();
        let status = message.header.status;
        let demand = self.answer(channel, &message, request).demand_of_logon(status);
        if is_met(demand, channel, &mut message) {
            return Ok(message);
        }
        Err(Cause::Security("the server's new logon of the user has no valid signature"))
    }

    /// Returns the facts that decide on the proof of an answer.
    fn answer(
        &self,
        channel: &Channel,
        message: &Message,
        request: Protection,
    ) -> receive_policy::Answer {
        receive_policy::Answer {
            request,
            protection: message.protection(self.session_id),
            has_signing_key: channel.signing.is_some(),
        }
    }

    /// Returns true if a repeated request may have the REPLAY flag.
    pub(crate) const fn knows_replay(&self) -> bool {
        self.terms.is_smb3()
    }

    /// Returns true where the simulator has planted that repeated requests do not have the REPLAY flag.
    pub(crate) fn skips_replay_flag(&self) -> bool {
        if planted!(SkippedReplayFlag) {
            return true;
        }
        let is_quic = |it: Arc<Channel>| it.connection.transport() == Transport::Quic;
        planted!(RepeatedOverQuic) && self.channel().is_some_and(is_quic)
    }
}

/// Returns true if an answer meets a demand.
fn is_met(demand: Demand, channel: &Channel, message: &mut Message) -> bool {
    match demand {
        Demand::Nothing => true,
        Demand::Signature => {
            channel.signing.as_ref().is_some_and(|key| message.is_signed_with(key))
        }
        Demand::Refusal(_) | Demand::Disconnect => false,
    }
}

/// A request that was sent. Dropping it cancels the request.
struct Waiting<'a> {
    live: &'a Arc<Live>,
    channel: &'a Arc<Channel>,
    /// `None` after the answer.
    sent: Option<Sent>,
    waits: bool,
    seal: bool,
}

impl Waiting<'_> {
    async fn answer(&mut self) -> Result<Message, Gone> {
        let Some(sent) = &mut self.sent else { return Err(Gone) };
        let message = sent.await;
        self.sent = None;
        message
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(sent) = self.sent.take() else { return };
        let (waits, seal) = (self.waits, self.seal);
        if !waits {
            return self.live.cancel(self.channel, sent.id, waits, seal);
        }
        // The interim response may come only after the caller has given up, so a task waits for the
        // answers.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (live, channel) = (Arc::clone(self.live), Arc::clone(self.channel));
        runtime.spawn(async move { live.cancelled(&channel, sent, seal).await.map(drop) });
    }
}

/// Sends a LOGOFF; errors are ignored.
pub(crate) async fn log_off(live: &Arc<Live>) {
    // All answers are awaited first, because a LOGOFF between two requests of a compound would
    // leave a file created but not written.
    let channels = live.channels.read().clone();
    for channel in &channels {
        channel.connection.answered().await;
    }
    let Some(channel) = live.channel() else { return };
    let call = Call::new(Command::LOGOFF, |w| Logoff.encode(w));
    let _ = live.call(&channel, call, false).await;
}
