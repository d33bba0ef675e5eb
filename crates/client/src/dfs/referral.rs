//! Asking for referrals: MS-DFSC 3.1.4.2 over MS-SMB2 3.2.4.20.3.

use frevo_wire::Command;
use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::dfs::{
    NameList, REFERRAL_LEVEL, ReferralRequest, ReferralResponse,
};
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::file_id::FileId;

use crate::connection::{Call, Message};
use crate::error::{During, Result};
use crate::share::{Replay, Share, fsctl};

const OPERATION: &str = "resolve";

/// Room for a referral, whose offsets have 16 bits.
const ROOM: u32 = 65_536;

/// What the server of `ipc` says of `path`, a root or what is below one.
pub(super) async fn targets(ipc: &Share, path: &str) -> Result<ReferralResponse> {
    let (message, url) = ask(ipc, path).await?;
    let response = ioctl::Response::parse(message.bytes()).during(OPERATION, &url)?;
    ReferralResponse::parse(response.output).during(OPERATION, &url)
}

/// The controllers of `domain`, as the server of `ipc`, which is one, knows them: a DC
/// referral.
pub(super) async fn controllers(ipc: &Share, domain: &str) -> Result<Vec<String>> {
    let (message, url) = ask(ipc, &format!("\\{domain}")).await?;
    let response = ioctl::Response::parse(message.bytes()).during(OPERATION, &url)?;
    let lists = NameList::parse_all(response.output).during(OPERATION, &url)?;
    // MS-DFSC 3.1.5.4.2: it is one.
    let [list] = &*lists else { return Ok(Vec::new()) };
    let bare = |name: &String| name.trim_matches('\\').to_owned();
    Ok(list.controllers.iter().map(bare).filter(|name| !name.is_empty()).collect())
}

async fn ask(ipc: &Share, path: &str) -> Result<(Message, String)> {
    let mut input = Vec::new();
    ReferralRequest { max_level: REFERRAL_LEVEL, path: path.into() }
        .encode(&mut Writer::new(&mut input));
    let url = format!("smb://{}", ipc.session().server());
    let mut attempts = ipc.attempts(Replay::Idempotent, OPERATION, &url);
    loop {
        let (live, bound) = attempts.next().await?;
        let call = fsctl(CtlCode::DFS_GET_REFERRALS, FileId::ALL_ONES, &input, ROOM);
        debug_assert!(call.command == Command::IOCTL);
        // Where the credentials are used next hangs on it.
        let call = Call { tree_id: bound.tree_id, ..call.signed() };
        let outcome = live.ask(call, bound.seal, &[]).await;
        if let Some(end) = attempts.judge(outcome, bound) {
            return end.map(|message| (message, url.clone()));
        }
    }
}
