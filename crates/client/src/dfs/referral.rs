//! Referral requests: MS-DFSC 3.1.4.2 over MS-SMB2 3.2.4.20.3.

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

/// Space for a referral, bytes; its offsets have 16 bits.
const REFERRAL_MAX: u32 = 65_536;

impl Share {
    /// Asks the server of this share, IPC$, for a referral for `path`, a root or a path below one.
    pub(super) async fn dfs_targets(&self, path: &str) -> Result<ReferralResponse> {
        let (message, url) = self.ask_referral(path).await?;
        let response = ioctl::Response::parse(message.bytes()).during(OPERATION, &url)?;
        ReferralResponse::parse(response.output).during(OPERATION, &url)
    }

    /// Asks the server of this share, a domain controller, for the controllers of `domain`: a DC
    /// referral.
    pub(super) async fn dfs_controllers(&self, domain: &str) -> Result<Vec<String>> {
        let (message, url) = self.ask_referral(&format!("\\{domain}")).await?;
        let response = ioctl::Response::parse(message.bytes()).during(OPERATION, &url)?;
        let lists = NameList::parse_all(response.output).during(OPERATION, &url)?;
        // MS-DFSC 3.1.5.4.2: a referral for domain controllers has one list of names.
        let [list] = &*lists else { return Ok(Vec::new()) };
        let bare = |name: &String| name.trim_matches('\\').to_owned();
        Ok(list.controllers.iter().map(bare).filter(|name| !name.is_empty()).collect())
    }

    async fn ask_referral(&self, path: &str) -> Result<(Message, String)> {
        let mut input = Vec::new();
        ReferralRequest { max_level: REFERRAL_LEVEL, path: path.into() }
            .encode(&mut Writer::new(&mut input));
        let url = format!("{}{}", self.session().options().scheme(), self.session().server());
        let mut attempts = self.attempts(Replay::Idempotent, OPERATION, &url);
        loop {
            let (live, bound) = attempts.next().await?;
            let call = fsctl(CtlCode::DFS_GET_REFERRALS, FileId::ALL_ONES, &input, REFERRAL_MAX);
            debug_assert!(call.command == Command::IOCTL);
            // The request is signed, because the answer decides which servers get the credentials.
            let call = Call { tree_id: bound.tree_id, ..call.signed() };
            let outcome = live.ask(call, bound.seal, &[]).await;
            if let Some(end) = attempts.judge(outcome, bound) {
                return end.map(|message| (message, url.clone()));
            }
        }
    }
}
