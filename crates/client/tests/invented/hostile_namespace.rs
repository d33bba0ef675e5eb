//! A DFS namespace that leads on and on, or where nobody may lead: it has an end, and
//! nobody is logged on to at the word of a stranger.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::dialed;
use crate::evil;

use dialed::one_thing;
use evil::{Act, Asked, Manners};
use frevo_client::limits::TARGETS_TRIED;
use frevo_client::{Cause, Client, Credentials, Error, Options, SmbUrl};
use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::dfs::{Referral, ReferralHeaderFlags, ReferralResponse};
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::command::session_setup::SessionFlags;
use frevo_wire::{Command, Status};

/// Answers as the server of a namespace whose links all lead to `targets` other
/// hosts, of which `is_good` accept the logon and have links again.
fn namespace(
    targets: usize,
    is_good: impl Fn(usize) -> bool + Send + Sync + 'static,
) -> impl Fn(&Asked<'_>) -> Act + Send + Sync + 'static {
    move |asked| match asked.header.command {
        Command::TREE_CONNECT if !is_good(asked.connection) => Act::Refused(Status::ACCESS_DENIED),
        // The tree connect response announces the capability SMB2_SHARE_CAP_DFS.
        Command::TREE_CONNECT => {
            Act::Changed(Box::new(|message| message[72..76].copy_from_slice(&[8, 0, 0, 0])))
        }
        Command::IOCTL => {
            let request = ioctl::Request::parse(asked.message).unwrap();
            assert_eq!(request.ctl_code, CtlCode::DFS_GET_REFERRALS);
            // The input has four bytes more than the path: MaxReferralLevel and a NUL, two bytes
            // each.
            let path_consumed = u16::try_from(request.input.len() - 4).unwrap();
            let referral = |at| Referral {
                is_root: false,
                time_to_live_s: 600,
                path: String::new(),
                target: format!("\\host{}-{at}\\data\\deeper", asked.connection),
                begins_set: false,
            };
            let referrals = (0..targets).map(referral).collect();
            let flags = ReferralHeaderFlags::EMPTY;
            let output = ReferralResponse { path_consumed, flags, referrals }.encode().unwrap();
            let (ctl_code, file_id) = (request.ctl_code, request.file_id);
            let mut body = Vec::new();
            ioctl::Response { ctl_code, file_id, input: &[], output: &output }
                .encode(&mut Writer::new(&mut body));
            Act::Body(body)
        }
        _ => Act::Honest,
    }
}

async fn reach(client: &Client) -> Result<(), Error> {
    let user = Credentials::new("ann", "secret");
    client.resolve(&SmbUrl::new("evil", "data", "link"), &user).await.map(drop)
}

#[test]
fn namespaces_that_lead_on_and_on() {
    // Targets for which `is_good` is false cannot be used; all other targets lead to further links.
    for is_good in [|at| at == 0, |at| at % 4 == 0, |_| true] {
        let (found, connections) = one_thing(
            Manners::default(),
            Options::default(),
            namespace(100, is_good),
            async |client| reach(client).await,
        );
        assert!(found.is_err());
        assert!((2..=1 + TARGETS_TRIED).contains(&connections), "{connections}");
    }
}

/// A referral decides to whom the answer to a password is given.
#[test]
fn referrals_that_are_not_proved_lead_nowhere() {
    let unsigned = Options::new().require_signing(false).sign(frevo_client::Signing::WhenAsked);
    let honest = namespace(1, |_| true);
    let (found, connections) =
        one_thing(Manners::default(), unsigned.clone(), honest, async |client| reach(client).await);
    assert!(found.is_err() && connections > 1, "a signed one is followed");
    let honest = namespace(1, |_| true);
    let forged = move |asked: &Asked<'_>| match (asked.header.command, honest(asked)) {
        // An attacker on the network, who has no key, sends an unsigned answer in place of the
        // server's.
        (Command::IOCTL, Act::Body(body)) => {
            Act::Bytes(evil::framed(&evil::said(&asked.header, Status::SUCCESS, &body)))
        }
        (_, act) => act,
    };
    let (found, _) =
        one_thing(Manners::default(), unsigned, forged, async |client| reach(client).await);
    let error = found.unwrap_err();
    assert!(matches!(error.cause(), Cause::Security(_)), "{error}");
    // A guest session has no key, so the referral cannot be signed and is not followed.
    let manners = Manners { flags: SessionFlags::IS_GUEST, ..Manners::default() };
    let guest = Options::new().allow_guest(true);
    let (found, connections) =
        one_thing(manners, guest, namespace(1, |_| true), async |client| reach(client).await);
    assert!(found.is_err());
    assert_eq!(connections, 1);
}
